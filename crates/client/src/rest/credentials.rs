//! The credentials in request headers: bearer token (re-read from its file, since it may be
//! rotated) and impersonation. Client certificates issued by a credential plugin are returned to
//! the TLS layer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::{Impersonate, RestConfig, Token};
use super::error::RestError;
use super::exec::ExecSource;
use super::issued_credentials::{IssuedCredentials, bearer};
use super::material::Identity;

/// The maximum age of a token from a file. Tokens of pods are rotated long before they expire.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(50);

/// The credentials in request headers.
#[derive(Debug)]
pub(super) struct Credentials {
    /// The same in all requests.
    fixed: HeaderMap,
    source: Option<Source>,
}

/// The source of the current token.
#[derive(Debug)]
enum Source {
    File(TokenFile),
    Exec(ExecSource),
}

/// The issued credentials that one request used, if any.
#[derive(Debug, Default)]
pub(super) struct UsedCredentials(Option<IssuedCredentials>);

impl UsedCredentials {
    /// Returns the issued certificate, if any.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.0.as_ref()?.identity.as_deref()
    }
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// The header, and when it was read.
    last: Mutex<Option<(HeaderValue, Instant)>>,
}

impl Credentials {
    /// Creates the credentials of `config`.
    ///
    /// # Errors
    /// They are not valid header values.
    pub(super) fn new(config: &RestConfig) -> Result<Self, String> {
        let mut fixed = HeaderMap::new();
        let mut source = None;
        match &config.token {
            None => {}
            Some(Token::Fixed(token)) => {
                fixed.insert(
                    AUTHORIZATION,
                    bearer(token).map_err(|why| format!("the token {why}"))?,
                );
            }
            Some(Token::File(path)) => {
                source = Some(Source::File(TokenFile {
                    path: path.clone(),
                    last: Mutex::default(),
                }));
            }
            Some(Token::Exec(plugin)) => {
                source = Some(Source::Exec(ExecSource::new(plugin.clone())));
            }
        }
        if let Some(who) = &config.impersonate {
            impersonate(who, &mut fixed)?;
        }
        Ok(Self { fixed, source })
    }

    /// Adds the credentials to the headers of a request.
    ///
    /// # Errors
    /// The token file was never readable, or the credential plugin fails.
    pub(super) async fn add(&self, headers: &mut HeaderMap) -> Result<UsedCredentials, RestError> {
        headers.extend(self.fixed.clone());
        let shown = match &self.source {
            None => return Ok(UsedCredentials::default()),
            Some(Source::File(file)) => IssuedCredentials::token(file.header().await?),
            Some(Source::Exec(program)) => program.issued().await?,
        };
        if let Some(token) = &shown.header {
            headers.insert(AUTHORIZATION, token.clone());
        }
        Ok(UsedCredentials(Some(shown)))
    }

    /// Discards credentials that the server rejected, so that the next request gets new ones.
    /// Newer credentials, which have replaced these concurrently, are retained.
    pub(super) fn discard(&self, shown: &UsedCredentials) {
        let Some(shown) = &shown.0 else { return };
        match &self.source {
            None => {}
            Some(Source::File(file)) => {
                let mut last = file.last.lock();
                let is_meant =
                    |(header, _): &mut (HeaderValue, _)| Some(&*header) == shown.header.as_ref();
                drop(last.take_if(is_meant));
            }
            Some(Source::Exec(program)) => program.discard(shown),
        }
    }
}

impl TokenFile {
    async fn header(&self) -> Result<HeaderValue, RestError> {
        let last = self.last.lock().clone();
        if let Some((header, read)) = &last
            && read.elapsed() < TOKEN_AGE_MAX
        {
            return Ok(header.clone());
        }
        match (read(&self.path).await, last) {
            (Ok(header), _) => {
                *self.last.lock() = Some((header.clone(), Instant::now()));
                Ok(header)
            }
            // The previous token may still be valid; if not, the server rejects it.
            (Err(error), Some((header, _))) => {
                tracing::warn!(%error, "cannot read the token file, keeping the previous token");
                Ok(header)
            }
            (Err(error), None) => Err(RestError::Credentials(error)),
        }
    }
}

async fn read(path: &Path) -> Result<HeaderValue, String> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| format!("{path:?}: {error}"))?;
    match text.trim() {
        "" => Err(format!("{path:?} is empty")),
        token => bearer(token).map_err(|why| format!("{path:?} {why}")),
    }
}

fn impersonate(who: &Impersonate, headers: &mut HeaderMap) -> Result<(), String> {
    let mut add = |name: &str, value: &str| {
        let refuse = || format!("{name}: {value:?} is not a valid header value");
        let name = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| refuse())?;
        headers.append(name, HeaderValue::try_from(value).map_err(|_| refuse())?);
        Ok::<_, String>(())
    };
    add("Impersonate-User", &who.user)?;
    if let Some(uid) = &who.uid {
        add("Impersonate-Uid", uid)?;
    }
    for group in &who.groups {
        add("Impersonate-Group", group)?;
    }
    for (key, values) in &who.extra {
        // Characters that are invalid in a header name are escaped, as by client-go.
        let key = percent_encoding::utf8_percent_encode(key, super::path::HEADER_NAME);
        for value in values {
            add(&format!("Impersonate-Extra-{key}"), value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn header(credentials: &Credentials) -> Result<String, RestError> {
        let mut headers = HeaderMap::new();
        credentials.add(&mut headers).await?;
        Ok(headers[AUTHORIZATION].to_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_read_again_when_old_or_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let credentials = Credentials::new(&RestConfig {
            token: Some(Token::File(path.clone())),
            ..RestConfig::new("https://a")
        })
        .unwrap();
        let error = header(&credentials).await.unwrap_err();
        assert!(error.to_string().contains("/token\""), "{error}");
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(header(&credentials).await.unwrap(), "Bearer one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(
            header(&credentials).await.unwrap(),
            "Bearer one",
            "the token is not old enough to be read again"
        );
        tokio::time::advance(TOKEN_AGE_MAX).await;
        assert_eq!(header(&credentials).await.unwrap(), "Bearer two");
        std::fs::write(&path, "three").unwrap();
        let mut headers = HeaderMap::new();
        let two = credentials.add(&mut headers).await.unwrap();
        credentials.discard(&two);
        assert_eq!(header(&credentials).await.unwrap(), "Bearer three");
        // The late response to a request with the old token.
        std::fs::write(&path, "four").unwrap();
        credentials.discard(&two);
        assert_eq!(header(&credentials).await.unwrap(), "Bearer three");
        std::fs::write(&path, "three").unwrap();
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(TOKEN_AGE_MAX).await;
        assert_eq!(
            header(&credentials).await.unwrap(),
            "Bearer three",
            "there is no newer token"
        );
    }

    #[tokio::test]
    async fn impersonation_headers() {
        let credentials = Credentials::new(&RestConfig {
            impersonate: Some(Impersonate {
                user: "jane".into(),
                uid: Some("7".into()),
                groups: vec!["a".into(), "b".into()],
                extra: vec![("example.com/Scope".into(), vec!["x".into()])],
            }),
            ..RestConfig::new("https://a")
        })
        .unwrap();
        let mut headers = HeaderMap::new();
        credentials.add(&mut headers).await.unwrap();
        assert_eq!(headers["impersonate-user"], "jane");
        assert_eq!(headers["impersonate-uid"], "7");
        let groups: Vec<_> = headers.get_all("impersonate-group").iter().collect();
        assert_eq!(groups, ["a", "b"]);
        assert_eq!(headers["impersonate-extra-example.com%2fscope"], "x");
    }
}
