//! `Credential`: the certificate or token that authenticated a request. A watch checks later whether it is still valid.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::client_certificate::ClientCertificate;
use crate::object_reader::ObjectReader;
use crate::service_account::ServiceAccountToken;
use crate::session_check::SessionCheck;
use crate::token_authenticator::TokenAuthenticator;
use crate::token_error::InvalidToken;
use crate::token_file::TokenDigest;
use crate::unauthorized::Unauthorized;

/// The valid credential of a request. Two are equal if all later checks have the same
/// result: they are the same certificate or token.
#[derive(Clone)]
pub enum Credential {
    /// A client certificate.
    ClientCertificate(Arc<ClientCertificate>),
    /// A token of the token file.
    StaticToken {
        /// Its digest.
        digest: TokenDigest,
        /// The authenticator with the current file.
        tokens: Arc<TokenAuthenticator>,
    },
    /// A token that an external authenticator has accepted.
    ExternalToken {
        /// Its digest.
        digest: TokenDigest,
        /// The end of its validity in Unix seconds, if known.
        expires: Option<i64>,
        /// Its issuer, if known.
        issuer: Option<Arc<str>>,
        /// The authenticator with the issuers that are accepted now.
        tokens: Arc<TokenAuthenticator>,
    },
    /// A service account token.
    ServiceAccount {
        /// The token.
        token: Box<ServiceAccountToken>,
        /// Reads the objects that it refers to.
        objects: Arc<dyn ObjectReader>,
    },
    /// A session of the console.
    ConsoleSession {
        /// The digest of its token.
        digest: TokenDigest,
        /// The sessions that are valid now.
        sessions: Arc<dyn SessionCheck>,
    },
}

impl Credential {
    /// Checks that the credential is still valid at `now`, in Unix seconds. A service account token whose objects
    /// cannot be read counts as valid.
    ///
    /// # Errors
    /// It has expired, or was revoked: its CA is no longer accepted, the token file no longer has it, or an object that
    /// it refers to was deleted, or the session has ended.
    pub async fn check(&self, now: i64) -> Result<(), Unauthorized> {
        match self {
            Self::ClientCertificate(certificate) => {
                certificate.check(now).map_err(Unauthorized::new)
            }
            Self::StaticToken { digest, tokens } => match tokens.static_user(*digest) {
                Some(_) => Ok(()),
                None => Err(Unauthorized::new("the token file no longer has the token")),
            },
            Self::ExternalToken {
                expires,
                issuer,
                tokens,
                ..
            } => {
                if expires.is_some_and(|expires| now > expires) {
                    return Err(Unauthorized::new("the bearer token has expired"));
                }
                match issuer {
                    Some(issuer) if !tokens.accepts_issuer(issuer) => Err(Unauthorized::new(
                        "the issuer of the bearer token is no longer accepted",
                    )),
                    _ => Ok(()),
                }
            }
            Self::ServiceAccount { token, objects } => {
                if token.accepted_until().is_some_and(|until| now > until) {
                    return Err(invalid(&InvalidToken::Expired));
                }
                match token.validate(&**objects).await {
                    Ok(_) | Err(InvalidToken::Unverified(_)) => Ok(()),
                    Err(error) => Err(invalid(&error)),
                }
            }
            Self::ConsoleSession { digest, sessions } => sessions.check_session(*digest, now).await,
        }
    }
}

fn invalid(error: &InvalidToken) -> Unauthorized {
    Unauthorized::new(format!("token of a service account: {error}"))
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ClientCertificate(one), Self::ClientCertificate(other)) => one == other,
            (Self::StaticToken { digest, .. }, Self::StaticToken { digest: other, .. }) => {
                digest == other
            }
            (Self::ExternalToken { digest, .. }, Self::ExternalToken { digest: other, .. }) => {
                digest == other
            }
            (Self::ServiceAccount { token, .. }, Self::ServiceAccount { token: other, .. }) => {
                token == other
            }
            (Self::ConsoleSession { digest, .. }, Self::ConsoleSession { digest: other, .. }) => {
                digest == other
            }
            _ => false,
        }
    }
}

impl Eq for Credential {}

impl Hash for Credential {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::ClientCertificate(certificate) => certificate.hash(state),
            Self::StaticToken { digest, .. }
            | Self::ExternalToken { digest, .. }
            | Self::ConsoleSession { digest, .. } => {
                digest.hash(state);
            }
            Self::ServiceAccount { token, .. } => token.hash(state),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientCertificate(certificate) => certificate.fmt(f),
            Self::StaticToken { .. } => f.debug_struct("StaticToken").finish_non_exhaustive(),
            Self::ExternalToken {
                expires, issuer, ..
            } => f
                .debug_struct("ExternalToken")
                .field("expires", expires)
                .field("issuer", issuer)
                .finish_non_exhaustive(),
            Self::ServiceAccount { token, .. } => f
                .debug_struct("ServiceAccount")
                .field("token", token)
                .finish_non_exhaustive(),
            Self::ConsoleSession { .. } => f.debug_struct("ConsoleSession").finish_non_exhaustive(),
        }
    }
}

#[cfg(test)]
mod tests {

    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::*;
    use crate::object_reader::{Freshness, ObjectReadError};
    use crate::service_account::{KubernetesClaims, TokenIssuer};
    use crate::token_file::TokenFile;
    use watchet_api::Object;

    fn reason(result: Result<(), Unauthorized>) -> String {
        result.unwrap_err().reason().to_owned()
    }

    #[tokio::test]
    async fn static_token_is_valid_until_its_file_is_replaced() {
        let file = |text| TokenFile::parse(text).unwrap();
        let tokens =
            TokenAuthenticator::new(Some(file("t1,ann,1\nt2,bob,2")), TokenIssuer::ephemeral());
        let tokens = Arc::new(tokens);
        let credential = |token| Credential::StaticToken {
            digest: TokenDigest::new(token),
            tokens: Arc::clone(&tokens),
        };
        assert_eq!(credential("t1").check(0).await, Ok(()));
        tokens.replace_token_file(file("t2,bob,2"));
        assert!(reason(credential("t1").check(0).await).contains("no longer"));
        assert_eq!(credential("t2").check(0).await, Ok(()));
    }

    /// Returns an error instead of each object.
    struct Failing(Mutex<ObjectReadError>);

    #[async_trait]
    impl ObjectReader for Failing {
        async fn read(
            &self,
            _: &str,
            _: Option<&str>,
            _: &str,
            _: Freshness,
        ) -> Result<Arc<Object>, ObjectReadError> {
            Err(self.0.lock().clone())
        }

        async fn record_token_use(&self, _: &Object) {}
    }

    #[tokio::test]
    async fn service_account_token_is_invalid_only_if_its_account_is_known_to_be_deleted() {
        let objects = Arc::new(Failing(Mutex::new(ObjectReadError::Failed(
            "outage".into(),
        ))));
        let mut token = ServiceAccountToken::new(KubernetesClaims {
            namespace: "ns".to_owned(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: crate::service_account::Reference::default(),
            warnafter: None,
        });
        token.accepted_until = Some(50);
        let credential = Credential::ServiceAccount {
            token: Box::new(token),
            objects: objects.clone(),
        };
        assert_eq!(
            credential.check(50).await,
            Ok(()),
            "an outage proves nothing"
        );
        assert!(reason(credential.check(51).await).contains("expired"));
        *objects.0.lock() = ObjectReadError::NotFound("account not found".into());
        assert!(reason(credential.check(49).await).contains("account not found"));
    }

    #[derive(Debug, Default)]
    struct OneIssuer(Mutex<String>);

    #[async_trait]
    impl crate::ExternalAuthenticator for OneIssuer {
        async fn authenticate(
            &self,
            _: &str,
            _: &[String],
        ) -> Result<Option<crate::ExternalUser>, InvalidToken> {
            Ok(None)
        }

        fn accepts_issuer(&self, issuer: &str) -> bool {
            *self.0.lock() == issuer
        }
    }

    #[tokio::test]
    async fn external_token_is_valid_until_it_expires_or_its_issuer_is_removed() {
        let issuer = Arc::new(OneIssuer(Mutex::new("https://a".to_owned())));
        let tokens = TokenAuthenticator::default().with_external(vec![issuer.clone()]);
        let credential = Credential::ExternalToken {
            digest: TokenDigest::new("t"),
            expires: Some(100),
            issuer: Some("https://a".into()),
            tokens: Arc::new(tokens),
        };
        assert_eq!(credential.check(100).await, Ok(()));
        assert!(reason(credential.check(101).await).contains("expired"));
        issuer.0.lock().clear();
        assert!(reason(credential.check(100).await).contains("no longer accepted"));
    }
}
