//! The claims of a token, with the types and error messages of upstream.

use serde_json::{Map, Value};

/// The claim `iss` in tokens of Google, which lacks the scheme of its URL.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// The claims of a token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claims(pub(super) Value);

impl Claims {
    /// Reads the payload of a token.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, String> {
        let claims: Map<String, Value> = serde_json::from_slice(payload)
            .map_err(|error| format!("oidc: failed to unmarshal claims: {error}"))?;
        Ok(Self(claims.into()))
    }

    /// Returns a claim.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the issuer.
    pub(super) fn issuer(&self) -> Option<&str> {
        let issuer = self.get("iss")?.as_str()?;
        Some(if issuer == GOOGLE.0 { GOOGLE.1 } else { issuer })
    }

    /// Returns a claim that must be a string.
    pub(super) fn string(&self, name: &str) -> Result<String, String> {
        match self.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err("it is no string".to_owned()),
            None => Err("claim not present".to_owned()),
        }
    }

    /// Returns a claim that must be a bool; `None` if it is absent.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, String> {
        match self.get(name) {
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err("it is no boolean".to_owned()),
            None => Ok(None),
        }
    }

    /// Returns a claim that must be a string or an array of strings; `None` if it is absent.
    pub(super) fn strings(&self, name: &str) -> Result<Option<Vec<String>>, String> {
        let wrong = || "it is neither a string nor an array of strings".to_owned();
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
            Some(Value::Array(items)) => {
                let text = |item: &Value| item.as_str().map(str::to_owned).ok_or_else(wrong);
                items.iter().map(text).collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Returns a claim that is a time in Unix seconds, without its fraction; `None` if it is absent.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let whole = value.as_i64();
        // Saturates.
        let time = whole.or_else(|| value.as_f64().map(|seconds| seconds as i64));
        let failed = || format!("oidc: failed to unmarshal claims: {name} is no number");
        time.map(Some).ok_or_else(failed)
    }
}
