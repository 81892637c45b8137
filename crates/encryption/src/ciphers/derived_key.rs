//! AES-GCM with a different key for each value: 32 random bytes, then the value, encrypted with the key that HKDF
//! expands from a seed and these bytes. No key encrypts two values, so nonces need not be unique.

#![cfg(feature = "kms")]

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};

use super::{AesGcm, Cipher, CipherError, random};

/// The length of a seed.
pub(crate) const SEED_BYTES: usize = 32;
const INFO_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

/// The cipher of a seed.
pub(crate) struct DerivedKeyAesGcm {
    seed: Prk,
}

impl DerivedKeyAesGcm {
    /// # Errors
    /// Returns [`CipherError::KeyLength`] for a seed of less than 32 bytes.
    pub(crate) fn new(seed: &[u8]) -> Result<Self, CipherError> {
        if seed.len() < SEED_BYTES {
            return Err(CipherError::KeyLength(seed.len()));
        }
        let seed = Prk::new_less_safe(HKDF_SHA256, seed);
        Ok(Self { seed })
    }

    fn cipher(&self, info: &[u8]) -> Result<AesGcm, CipherError> {
        let mut key = [0; KEY_BYTES];
        let info = [info];
        let derived = self.seed.expand(&info, HKDF_SHA256);
        derived
            .and_then(|derived| derived.fill(&mut key))
            .map_err(|_| CipherError::KeyLength(KEY_BYTES))?;
        AesGcm::new(&key)
    }
}

impl Cipher for DerivedKeyAesGcm {
    fn encrypt(&self, plaintext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let info = random::<INFO_BYTES>()?;
        let text = self.cipher(&info)?.encrypt(plaintext, context)?;
        Ok([&info[..], &text].concat())
    }

    fn decrypt(&self, ciphertext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (info, text) = ciphertext
            .split_first_chunk::<INFO_BYTES>()
            .ok_or(CipherError::TooShort)?;
        self.cipher(info)?.decrypt(text, context)
    }
}
