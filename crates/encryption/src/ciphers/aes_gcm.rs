//! AES-GCM: 12 bytes of random nonce, the ciphertext, 16 bytes of tag. The storage key is associated data.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};

use super::{Cipher, CipherError, random};

/// AES-GCM with a key of 16, 24 or 32 bytes.
pub(crate) struct AesGcm {
    key: LessSafeKey,
}

impl AesGcm {
    /// # Errors
    /// Returns [`CipherError::KeyLength`] for a key of another length.
    pub(crate) fn new(key: &[u8]) -> Result<Self, CipherError> {
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            length => return Err(CipherError::KeyLength(length)),
        };
        let key = UnboundKey::new(algorithm, key).map_err(|_| CipherError::KeyLength(key.len()))?;
        Ok(Self {
            key: LessSafeKey::new(key),
        })
    }
}

impl Cipher for AesGcm {
    fn encrypt(&self, plaintext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let nonce = random::<NONCE_LEN>()?;
        let tag_bytes = self.key.algorithm().tag_len();
        let mut out = Vec::with_capacity(NONCE_LEN + plaintext.len() + tag_bytes);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plaintext);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(context), &mut out[NONCE_LEN..])
            .map_err(|_| CipherError::TooShort)?;
        out.extend_from_slice(tag.as_ref());
        Ok(out)
    }

    fn decrypt(&self, ciphertext: &[u8], context: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (nonce, text) = ciphertext
            .split_first_chunk::<NONCE_LEN>()
            .filter(|(_, text)| text.len() >= self.key.algorithm().tag_len())
            .ok_or(CipherError::TooShort)?;
        let mut text = text.to_vec();
        let length = self
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(context),
                &mut text,
            )
            .map_err(|_| CipherError::Inauthentic)?
            .len();
        text.truncate(length);
        Ok(text)
    }
}
