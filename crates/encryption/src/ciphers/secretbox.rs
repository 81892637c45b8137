//! NaCl's secretbox (XSalsa20 and Poly1305): 24 bytes of random nonce, 16 bytes of tag, the ciphertext. The storage key
//! is not authenticated, so a program that can write to the store can swap two values without being detected.

use crypto_secretbox::aead::Aead as _;
use crypto_secretbox::{KeyInit as _, Nonce, XSalsa20Poly1305};

use super::{Cipher, CipherError, random};

const NONCE_BYTES: usize = 24;

/// Secretbox with a key of 32 bytes.
pub(crate) struct Secretbox {
    key: XSalsa20Poly1305,
}

impl Secretbox {
    /// # Errors
    /// Returns [`CipherError::KeyLength`] for a key of another length.
    pub(crate) fn new(key: &[u8]) -> Result<Self, CipherError> {
        let key =
            XSalsa20Poly1305::new_from_slice(key).map_err(|_| CipherError::KeyLength(key.len()))?;
        Ok(Self { key })
    }
}

impl Cipher for Secretbox {
    fn encrypt(&self, plaintext: &[u8], _context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let nonce = random::<NONCE_BYTES>()?;
        let text = self
            .key
            .encrypt(Nonce::from_slice(&nonce), plaintext)
            .map_err(|_| CipherError::TooShort)?;
        Ok([&nonce[..], &text].concat())
    }

    fn decrypt(&self, ciphertext: &[u8], _context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (nonce, text) = ciphertext
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(CipherError::TooShort)?;
        self.key
            .decrypt(Nonce::from_slice(nonce), text)
            .map_err(|_| CipherError::Inauthentic)
    }
}
