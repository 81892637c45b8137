//! The fields of an `EncryptionConfiguration`, not validated.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use watchet_api::parse_go_duration;

const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// The error of an invalid configuration. The message names each field and its problem; it contains no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(pub(super) String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
pub(super) struct Document {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) resources: Vec<ResourceConfiguration>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResourceConfiguration {
    pub(super) resources: Vec<String>,
    pub(super) providers: Vec<Provider>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Provider {
    pub(super) aescbc: Option<Keys>,
    pub(super) aesgcm: Option<Keys>,
    pub(super) secretbox: Option<Keys>,
    pub(super) identity: Option<Identity>,
    pub(super) kms: Option<Kms>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Keys {
    pub(super) keys: Vec<KeyEntry>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyEntry {
    pub(super) name: String,
    pub(super) secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Kms {
    /// Empty is `v1`.
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    pub(super) name: String,
    pub(super) cachesize: Option<i32>,
    pub(super) endpoint: String,
    pub(super) timeout: Option<String>,
}

impl KeyEntry {
    /// Returns the key's bytes; `None` if it is not base64.
    pub(super) fn decoded(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.secret).ok()
    }
}

impl Kms {
    /// Returns the path in an endpoint `unix://path`; `None` if it has another form.
    pub(super) fn socket(&self) -> Option<&str> {
        let path = self.endpoint.strip_prefix("unix://")?;
        // `unix:///@name` is an abstract socket, as upstream.
        let path = path
            .strip_prefix('/')
            .filter(|name| name.starts_with('@'))
            .unwrap_or(path);
        (!path.is_empty()).then_some(path)
    }

    /// Returns the time limit of a call; `None` if it is not a positive duration.
    pub(super) fn timeout(&self) -> Option<Duration> {
        match &self.timeout {
            Some(text) => parse_go_duration(text).filter(|timeout| !timeout.is_zero()),
            None => Some(KMS_TIMEOUT),
        }
    }
}
