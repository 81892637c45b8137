//! The ciphers of the providers `aescbc`, `aesgcm` and `secretbox`, and of the data encryption keys of `kms`. The
//! formats are those of kube-apiserver (`k8s.io/apiserver/pkg/storage/value/encrypt`).

mod aes_cbc;
mod aes_gcm;
mod derived_key;
mod secretbox;

pub(crate) use aes_cbc::AesCbc;
pub(crate) use aes_gcm::AesGcm;
#[cfg(feature = "kms")]
pub(crate) use derived_key::{DerivedKeyAesGcm, SEED_BYTES};
pub(crate) use secretbox::Secretbox;

/// The error of an encryption or decryption. The messages do not depend on the plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CipherError {
    #[error("the key has {0} bytes")]
    KeyLength(usize),
    #[error("the stored value is shorter than its cipher's nonce and tag")]
    TooShort,
    #[error(
        "the stored value was encrypted with another key or for another storage key, or it is damaged"
    )]
    Inauthentic,
    #[error("the system has no random numbers")]
    NoRandomness,
}

/// A cipher with a key.
pub(crate) trait Cipher: Send + Sync {
    /// Encrypts `plaintext`. `context` is the storage key, which a cipher with associated data authenticates.
    fn encrypt(&self, plaintext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError>;

    /// Decrypts `ciphertext`, which was encrypted with the same `context`.
    fn decrypt(&self, ciphertext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError>;
}

/// Returns random bytes from the operating system.
pub(crate) fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], CipherError> {
    let mut bytes = [0; LENGTH];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| CipherError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A cipher with a key, and one with another key.
    type Pair = (&'static str, Box<dyn Cipher>, Box<dyn Cipher>);

    fn ciphers() -> Vec<Pair> {
        fn pair<C: Cipher + 'static>(name: &'static str, new: impl Fn(u8) -> C) -> Pair {
            (name, Box::new(new(1)), Box::new(new(2)))
        }
        vec![
            pair("aescbc 16", |fill| AesCbc::new(&[fill; 16]).unwrap()),
            pair("aescbc 24", |fill| AesCbc::new(&[fill; 24]).unwrap()),
            pair("aescbc 32", |fill| AesCbc::new(&[fill; 32]).unwrap()),
            pair("aesgcm 16", |fill| AesGcm::new(&[fill; 16]).unwrap()),
            pair("aesgcm 24", |fill| AesGcm::new(&[fill; 24]).unwrap()),
            pair("aesgcm 32", |fill| AesGcm::new(&[fill; 32]).unwrap()),
            pair("secretbox", |fill| Secretbox::new(&[fill; 32]).unwrap()),
            #[cfg(feature = "kms")]
            pair("derived", |fill| {
                DerivedKeyAesGcm::new(&[fill; SEED_BYTES]).unwrap()
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_value_is_decrypted_with_its_key_only(
            value in proptest::collection::vec(any::<u8>(), 0..200),
            flip in any::<prop::sample::Index>(),
        ) {
            for (name, cipher, other) in ciphers() {
                let encrypted = cipher.encrypt(&value, b"/registry/secrets/a/b").unwrap();
                let decrypted = cipher.decrypt(&encrypted, b"/registry/secrets/a/b");
                prop_assert_eq!(decrypted.as_ref(), Ok(&value), "{}", name);
                let again = cipher.encrypt(&value, b"/registry/secrets/a/b").unwrap();
                prop_assert_ne!(&encrypted, &again, "{}: a nonce was used twice", name);
                let with_other = other.decrypt(&encrypted, b"/registry/secrets/a/b");
                prop_assert_ne!(with_other.as_ref(), Ok(&value), "{}", name);
                // CBC does not authenticate.
                if name.starts_with("aescbc") {
                    continue;
                }
                prop_assert_eq!(with_other, Err(CipherError::Inauthentic), "{}", name);
                let mut damaged = encrypted.clone();
                let at = flip.index(damaged.len());
                damaged[at] ^= 1;
                prop_assert_eq!(
                    cipher.decrypt(&damaged, b"/registry/secrets/a/b"), Err(CipherError::Inauthentic), "{}", name
                );
                // Secretbox has no associated data.
                if name != "secretbox" {
                    prop_assert_eq!(
                        cipher.decrypt(&encrypted, b"/registry/secrets/a/c"), Err(CipherError::Inauthentic), "{}", name
                    );
                }
            }
        }

        #[test]
        fn any_bytes_can_be_decrypted_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            for (name, cipher, _) in ciphers() {
                let decrypted = cipher.decrypt(&bytes, b"");
                prop_assert!(decrypted.is_err() || name.starts_with("aescbc"), "{}", name);
            }
        }
    }

    #[test]
    fn keys_of_other_lengths_are_refused() {
        for length in [0, 1, 15, 17, 31, 33, 64] {
            let key = vec![0; length];
            let refused = Err(CipherError::KeyLength(length));
            assert_eq!(AesCbc::new(&key).map(drop), refused);
            assert_eq!(AesGcm::new(&key).map(drop), refused);
            assert_eq!(Secretbox::new(&key).map(drop), refused);
        }
    }
}
