//! Continue tokens (KEP-365): the start key of the next page and the resourceVersion of the list.
//! The encoding is upstream's, so a token works after a restart and on another replica.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::ResourceVersion;

const VERSION: &str = "meta.k8s.io/v1";

/// The position of a list's next page: everything from `start` on, at `resource_version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// The resourceVersion of the first page; `None` continues at the latest one (`rv: -1` in the
    /// token).
    pub resource_version: Option<ResourceVersion>,
    /// The first key of the next page, relative to the list's prefix: the last key sent and a NUL
    /// byte.
    pub start: String,
    /// The number of remaining objects from `start` on, if known, so that later pages need not
    /// count them.
    pub remaining: Option<u64>,
}

/// The text is not a continue token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid continue token: continue key is not valid: {0}")]
pub struct InvalidContinueToken(pub &'static str);

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
    /// The remaining count. Newer upstream versions write it under this name, older ones ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rc: Option<u64>,
}

impl ContinueToken {
    /// Returns the unpadded URL-safe base64 of the token's JSON.
    pub fn encode(&self) -> String {
        let rv = self.resource_version.map_or(-1, |rv| rv.get() as i64);
        let wire = Wire {
            v: VERSION.to_owned(),
            rv,
            start: self.start.clone(),
            rc: self.remaining,
        };
        let json = serde_json::to_vec(&wire).expect("a string and a number always encode");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// [`InvalidContinueToken`] if the text is not base64 or JSON, has another version, a zero
    /// revision, an empty start key, or a start key with an empty, `.` or `..` segment, which could
    /// leave the prefix. One leading slash is removed.
    pub fn decode(text: &str) -> Result<Self, InvalidContinueToken> {
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| InvalidContinueToken("not base64"))?;
        let wire: Wire =
            serde_json::from_slice(&json).map_err(|_| InvalidContinueToken("not a token"))?;
        if wire.v != VERSION {
            return Err(InvalidContinueToken("unknown version"));
        }
        if wire.rv == 0 {
            return Err(InvalidContinueToken(
                "incorrect encoded start resourceVersion",
            ));
        }
        if wire.start.is_empty() {
            return Err(InvalidContinueToken("empty start"));
        }
        let start = wire.start.strip_prefix('/').unwrap_or(&wire.start);
        let unclean = |segment| matches!(segment, "" | "." | "..");
        if !start.is_empty() && start.split('/').any(unclean) {
            return Err(InvalidContinueToken("unclean start"));
        }
        let resource_version = u64::try_from(wire.rv).ok().map(ResourceVersion::new);
        Ok(Self {
            resource_version,
            start: start.to_owned(),
            remaining: wire.rc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_invalid_tokens() {
        for rv in [None, Some(ResourceVersion::new(7))] {
            let token = ContinueToken {
                resource_version: rv,
                start: "ns/a\0".to_owned(),
                remaining: rv.map(|_| 3),
            };
            assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for bad in [
            "%%".to_owned(),
            encode("{}"),
            encode(r#"{"v":"v1","rv":1,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"//a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a/"}"#),
        ] {
            let error = ContinueToken::decode(&bad).unwrap_err().to_string();
            let prefix = "invalid continue token: continue key is not valid: ";
            assert!(error.starts_with(prefix), "{bad}: {error}");
        }
    }

    #[test]
    fn encoding_equals_upstream() {
        let token = ContinueToken {
            resource_version: Some(ResourceVersion::new(7)),
            start: "a\0".to_owned(),
            remaining: None,
        };
        let json = URL_SAFE_NO_PAD.decode(token.encode()).unwrap();
        assert_eq!(json, br#"{"v":"meta.k8s.io/v1","rv":7,"start":"a\u0000"}"#);
        let slash = r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000","x":1}"#;
        let decoded = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(slash));
        assert_eq!(
            decoded,
            Ok(token),
            "one leading slash is no part of the start"
        );
    }
}
