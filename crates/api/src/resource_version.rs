//! `ResourceVersion`: a storage revision as a number.

use std::fmt;
use std::str::FromStr;

/// A storage revision as Kubernetes represents it: the decimal text of an etcd revision, compared
/// as a number (KEP-5504). Zero means unset or any version; no object has it.
///
/// ```
/// use watchet_api::ResourceVersion;
/// let rv: ResourceVersion = "42".parse().unwrap();
/// assert!(rv > ResourceVersion::ZERO);
/// assert!("-1".parse::<ResourceVersion>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// "Any version": `""` and `"0"` parse to it.
    pub const ZERO: Self = Self(0);

    /// Returns the version of the storage revision `revision`.
    pub const fn new(revision: u64) -> Self {
        Self(revision)
    }

    /// Returns the revision as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns true if this is [`Self::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the next revision: the first that a watch after `self` receives.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// The text is not a plain unsigned decimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid resource version: {0:?}: must be a non-negative decimal number")]
pub struct InvalidResourceVersion(pub String);

impl FromStr for ResourceVersion {
    type Err = InvalidResourceVersion;

    /// Parses decimal digits; `""` and `"0"` are zero, and signs are invalid.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::ZERO);
        }
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidResourceVersion(text.to_owned()));
        }
        text.parse()
            .map(Self)
            .map_err(|_| InvalidResourceVersion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_digits_only() {
        assert_eq!("".parse(), Ok(ResourceVersion::ZERO));
        assert_eq!("0".parse(), Ok(ResourceVersion::ZERO));
        assert_eq!(
            "18446744073709551615".parse(),
            Ok(ResourceVersion::new(u64::MAX))
        );
        for bad in ["-1", "+1", "abc", " 1", "1.0", "18446744073709551616"] {
            assert!(
                bad.parse::<ResourceVersion>().is_err(),
                "{bad:?} was accepted"
            );
        }
    }
}
