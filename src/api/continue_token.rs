//! Continue tokens (KEP-365): where a paged list goes on, and at which revision. The text is
//! upstream's form, so that a token outlives a restart and works on another replica.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::ResourceVersion;

const VERSION: &str = "meta.k8s.io/v1";

/// A place in a list: everything from `start` on, as of `resource_version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the first page; `None` goes on at the latest one (a token's `rv: -1`).
    pub resource_version: Option<ResourceVersion>,
    /// The first key of the next page, relative to the list's prefix, not inclusive of what was
    /// sent: the last key sent and a NUL.
    pub start: String,
    /// How many objects of the list come from there on, when that is known: so that no page has to
    /// count them again.
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
    /// Upstream's name for it, in its newest versions; older ones pass over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rc: Option<u64>,
}

impl ContinueToken {
    /// The token's text: unpadded URL-safe base64 of its JSON.
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

    /// Reads a token.
    ///
    /// # Errors
    /// [`InvalidContinueToken`]: not base64, not JSON, another version, a zero revision, an empty
    /// start or one that is no clean path and so might lead out of the prefix. One leading slash is
    /// no part of it.
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
    fn round_trip_and_refusals() {
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
            let words = "invalid continue token: continue key is not valid: ";
            assert!(error.starts_with(words), "{bad}: {error}");
        }
    }

    #[test]
    fn the_text_is_upstreams() {
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
