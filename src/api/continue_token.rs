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
}

/// The text is not a continue token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("continue key is not valid: {0}")]
pub struct InvalidContinueToken(pub &'static str);

#[derive(Serialize, Deserialize)]
struct Wire {
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    /// The token's text: unpadded URL-safe base64 of its JSON.
    pub fn encode(&self) -> String {
        let rv = self.resource_version.map_or(-1, |rv| rv.get() as i64);
        let wire = Wire {
            v: VERSION.to_owned(),
            rv,
            start: self.start.clone(),
        };
        let json = serde_json::to_vec(&wire).expect("a string and a number always encode");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`InvalidContinueToken`]: not base64, not JSON, another version, a zero revision, an empty
    /// start or one that walks out of the prefix.
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
        let clean = wire.start.trim_end_matches('\0').trim_start_matches('/');
        if clean
            .split('/')
            .any(|segment| matches!(segment, "" | "." | ".."))
        {
            return Err(InvalidContinueToken("unclean start"));
        }
        let resource_version = u64::try_from(wire.rv).ok().map(ResourceVersion::new);
        Ok(Self {
            resource_version,
            start: wire.start,
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
        ] {
            assert!(ContinueToken::decode(&bad).is_err(), "{bad}");
        }
    }
}
