//! AES-CBC with PKCS#7 padding: 16 bytes of initialization vector, then the ciphertext. It is not authenticated, so a
//! program that can write to the store can change values without being detected; upstream advises against it for new
//! data.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

use super::{Cipher, CipherError, random};

const BLOCK_BYTES: usize = 16;

/// AES-CBC with a key of 16, 24 or 32 bytes.
pub(crate) struct AesCbc {
    encrypting: PaddedBlockEncryptingKey,
    decrypting: PaddedBlockDecryptingKey,
}

impl AesCbc {
    /// # Errors
    /// Returns [`CipherError::KeyLength`] for a key of another length.
    pub(crate) fn new(key: &[u8]) -> Result<Self, CipherError> {
        let algorithm = match key.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            length => return Err(CipherError::KeyLength(length)),
        };
        let wrong_length = |_| CipherError::KeyLength(key.len());
        let unbound = || UnboundCipherKey::new(algorithm, key);
        Ok(Self {
            encrypting: unbound()
                .and_then(PaddedBlockEncryptingKey::cbc_pkcs7)
                .map_err(wrong_length)?,
            decrypting: unbound()
                .and_then(PaddedBlockDecryptingKey::cbc_pkcs7)
                .map_err(wrong_length)?,
        })
    }
}

impl Cipher for AesCbc {
    fn encrypt(&self, plaintext: &[u8], _context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let vector = random::<BLOCK_BYTES>()?;
        let mut text = plaintext.to_vec();
        let context = EncryptionContext::Iv128(FixedLength::from(vector));
        self.encrypting
            .less_safe_encrypt(&mut text, context)
            .map_err(|_| CipherError::NoRandomness)?;
        Ok([&vector[..], &text].concat())
    }

    fn decrypt(&self, ciphertext: &[u8], _context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (vector, text) = ciphertext
            .split_first_chunk::<BLOCK_BYTES>()
            .ok_or(CipherError::TooShort)?;
        if text.is_empty() {
            return Err(CipherError::TooShort);
        }
        let mut text = text.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(*vector));
        let length = self
            .decrypting
            .decrypt(&mut text, context)
            .map_err(|_| CipherError::Inauthentic)?
            .len();
        text.truncate(length);
        Ok(text)
    }
}
