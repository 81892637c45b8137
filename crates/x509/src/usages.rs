//! `Usages`: the key usages of the certificates API, and their X.509 encoding.

use super::der::{element, sequence};

/// The usages of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usages {
    /// Bit 0 of KeyUsage is the least significant.
    bits: u16,
    /// DER object identifiers, in Go's order, unique.
    purposes: Vec<&'static [u8]>,
}

/// The names of KeyUsage bits.
const BITS: [(&str, u8); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// The names of extended key usages in Go's encoding order.
const PURPOSES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", EMAIL_PROTECTION),
    ("s/mime", EMAIL_PROTECTION),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x0a, 3, 3]),
    (
        "netscape sgc",
        &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1],
    ),
];

const EMAIL_PROTECTION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 4];

impl Usages {
    /// Parses the usages of a CertificateSigningRequest.
    ///
    /// # Errors
    /// Returns upstream's error with the unknown names.
    pub fn parse(names: &[&str]) -> Result<Self, String> {
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| !BITS.iter().any(|(known, _)| known == *name))
            .filter(|name| !PURPOSES.iter().any(|(known, _)| known == *name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(" ");
            return Err(format!("unrecognized usage values: [{unknown}]"));
        }
        let bits = BITS.iter().filter(|(name, _)| names.contains(name));
        let purposes = PURPOSES.iter().filter(|(name, _)| names.contains(name));
        let mut purposes: Vec<_> = purposes.map(|(_, id)| *id).collect();
        purposes.dedup();
        Ok(Self {
            bits: bits.fold(0, |bits, (_, bit)| bits | 1 << bit),
            purposes,
        })
    }

    /// Returns the value of the KeyUsage extension, if any.
    pub(super) fn key_usage(&self) -> Option<Vec<u8>> {
        // A BIT STRING starts with the most significant bit of its first byte and ends with the
        // last set bit.
        let [first, second] = self.bits.reverse_bits().to_be_bytes();
        match (first, second) {
            (0, 0) => None,
            (first, 0) => {
                let unused = u8::try_from(first.trailing_zeros()).ok()?;
                Some(element(0x03, &[&[unused, first]]))
            }
            (first, second) => {
                let unused = u8::try_from(second.trailing_zeros()).ok()?;
                Some(element(0x03, &[&[unused, first, second]]))
            }
        }
    }

    /// Returns the value of the ExtendedKeyUsage extension, if any.
    pub(super) fn extended(&self) -> Option<Vec<u8>> {
        let ids: Vec<_> = self
            .purposes
            .iter()
            .map(|id| element(0x06, &[id]))
            .collect();
        (!ids.is_empty()).then(|| sequence(&ids))
    }
}
