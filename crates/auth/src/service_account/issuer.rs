//! Issues and verifies service account tokens: JSON Web Tokens with the account, the objects that they
//! are bound to, and their audiences. The objects are checked in `token`.

use std::collections::BTreeMap;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::claims::{Claims, KubernetesClaims};
use super::keys::{InvalidKeys, SigningKey, VerifyingKey};
use super::lifetime::{EXTENDED_EXPIRATION_SECONDS, TokenLifetime, WARN_ONLY_EXPIRATION_SECONDS};
use super::secret_token::{self, SecretToken};
use super::token::ServiceAccountToken;
use crate::token_error::InvalidToken;

/// The default issuer, which kubeadm configures too.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The tolerated difference of clocks, in seconds.
const LEEWAY_SECONDS: u32 = 60;
/// The maximum length of a token in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Issues and verifies tokens.
#[derive(Debug)]
pub struct TokenIssuer {
    signing: SigningKey,
    /// The verifying keys by key ID, including that of the signing key.
    verifying: BTreeMap<String, VerifyingKey>,
    /// The first is written into new tokens; tokens of the others are accepted.
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// The maximum validity of new tokens in seconds, if there is one.
    expiration_max: Option<i64>,
    /// Whether the validity of the tokens of pods is extended.
    extends_expiration: bool,
}

impl TokenIssuer {
    /// Creates an issuer that signs with the private key `signing`, in PEM, and also accepts signatures of
    /// the keys in `others`. Without issuers it uses [the default](DEFAULT_ISSUER), without audiences the
    /// issuers.
    ///
    /// # Errors
    /// A text has no supported key. The error has the index in `others`, or `None` for `signing`.
    pub fn new(
        signing: &str,
        others: &[String],
        mut issuers: Vec<String>,
        mut audiences: Vec<String>,
    ) -> Result<Self, (Option<usize>, InvalidKeys)> {
        if issuers.is_empty() {
            issuers.push(DEFAULT_ISSUER.to_owned());
        }
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let (signing, own) = SigningKey::from_pem(signing).map_err(|error| (None, error))?;
        let mut verifying = BTreeMap::from([(own.id.clone(), own)]);
        for (index, pem) in others.iter().enumerate() {
            let keys = VerifyingKey::all_from_pem(pem).map_err(|error| (Some(index), error))?;
            verifying.extend(keys.into_iter().map(|key| (key.id.clone(), key)));
        }
        Ok(Self {
            signing,
            verifying,
            issuers,
            audiences,
            expiration_max: None,
            extends_expiration: true,
        })
    }

    /// Limits the validity of new tokens to this number of seconds.
    #[must_use]
    pub fn with_expiration_max(mut self, seconds: Option<i64>) -> Self {
        self.expiration_max = seconds;
        self
    }

    /// Extends the validity of the tokens of pods, or not; by default it is extended. See [`Self::lifetime`].
    #[must_use]
    pub fn with_extended_expiration(mut self, is_extended: bool) -> Self {
        self.extends_expiration = is_extended;
        self
    }

    /// Returns the validity in seconds of a new token for which `requested` seconds are requested.
    pub fn validity(&self, requested: i64) -> i64 {
        requested.min(self.expiration_max.unwrap_or(i64::MAX))
    }

    /// Returns the lifetime of a new token with this [validity](Self::validity). It is longer, and its use after the validity
    /// is reported, if the token is bound to a pod, is only for this server, and has exactly the validity of the volumes that
    /// the admission plugin `ServiceAccount` adds to pods: programs that read their token only once continue to work. As
    /// upstream, the maximum validity does not limit the extension.
    pub fn lifetime(
        &self,
        validity: i64,
        is_bound_to_pod: bool,
        audiences: &[String],
    ) -> TokenLifetime {
        let is_extended = self.extends_expiration
            && is_bound_to_pod
            && validity == WARN_ONLY_EXPIRATION_SECONDS
            && audiences.iter().all(|one| self.audiences.contains(one));
        match is_extended {
            true => TokenLifetime {
                expires_after: EXTENDED_EXPIRATION_SECONDS,
                warn_after: Some(validity),
            },
            false => TokenLifetime {
                expires_after: validity,
                warn_after: None,
            },
        }
    }

    /// Creates an issuer with a new key that is not stored.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn ephemeral() -> Self {
        let key = rcgen::KeyPair::generate().expect("the system has random numbers");
        Self::new(&key.serialize_pem(), &[], Vec::new(), Vec::new())
            .unwrap_or_else(|(_, error)| panic!("a new key is usable: {error}"))
    }

    /// Returns the audiences of this server, which a token has if none are requested.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the issuer of new tokens.
    pub fn name(&self) -> &str {
        &self.issuers[0]
    }

    /// Signs `claims`.
    ///
    /// # Errors
    /// The reason why the key cannot sign.
    pub fn sign(&self, claims: &Claims) -> Result<String, String> {
        let header = Header {
            typ: None,
            kid: Some(self.signing.id.clone()),
            ..Header::new(self.signing.algorithm)
        };
        let signed = jsonwebtoken::encode(&header, claims, &self.signing.key);
        signed.map_err(|error| error.to_string())
    }

    /// Authenticates a token for one of `audiences`; without audiences, for this server.
    ///
    /// # Errors
    /// The token is invalid.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<ServiceAccountToken, InvalidToken> {
        match self.verify(token, audiences) {
            Ok((claims, audiences)) => Ok(ServiceAccountToken {
                kubernetes: claims.kubernetes,
                token_id: claims.jti,
                audiences,
                accepted_until: Some(claims.exp.saturating_add(LEEWAY_SECONDS.into())),
                secret_token: None,
            }),
            Err(InvalidToken::Unknown) => {
                let (kubernetes, audiences) = self.verify_secret_token(token, audiences)?;
                Ok(ServiceAccountToken {
                    kubernetes,
                    token_id: String::new(),
                    audiences,
                    accepted_until: None,
                    secret_token: Some(SecretToken(token.to_owned())),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the claims of a token that has a valid signature and is valid now for one of `audiences`
    /// (none: this server), and those of the audiences that it is for.
    ///
    /// # Errors
    /// [`InvalidToken::Unknown`] if no key has signed it; else what is wrong with it.
    fn verify(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Claims, Vec<String>), InvalidToken> {
        let header = header(token)?;
        let required = ["exp", "iss", "sub"];
        let claims: Claims = self.signed(token, &header, &self.issuers, &required)?;
        let audiences = self.common_audiences(&claims.aud, audiences)?;
        Ok((claims, audiences))
    }

    /// Like [`verify`](Self::verify) for a token that is stored in a Secret: it does not expire, and it is
    /// for this server.
    fn verify_secret_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(KubernetesClaims, Vec<String>), InvalidToken> {
        let header = header(token)?;
        let issuers = [secret_token::ISSUER.to_owned()];
        let claims: secret_token::Claims =
            self.signed(token, &header, &issuers, &["iss", "sub"])?;
        let claims = claims.into_bound().ok_or(InvalidToken::Unknown)?;
        let audiences = self.common_audiences(&self.audiences, audiences)?;
        Ok((claims, audiences))
    }

    /// Returns those of the requested audiences (none: this server) that a token is for.
    fn common_audiences(
        &self,
        token: &[String],
        requested: &[String],
    ) -> Result<Vec<String>, InvalidToken> {
        let requested = match requested {
            [] => &self.audiences,
            named => named,
        };
        let common = token.iter().filter(|one| requested.contains(one));
        let common: Vec<String> = common.cloned().collect();
        match common.is_empty() {
            true => Err(InvalidToken::Audiences {
                token: token.to_vec(),
                requested: requested.to_vec(),
            }),
            false => Ok(common),
        }
    }

    fn signed<T: DeserializeOwned>(
        &self,
        token: &str,
        header: &Header,
        issuers: &[String],
        required: &[&str],
    ) -> Result<T, InvalidToken> {
        let key_id = header.kid.as_deref();
        let named = |key: &&VerifyingKey| key_id.is_none_or(|id| id == key.id);
        for key in self.verifying.values().filter(named) {
            let mut validation = Validation::new(key.algorithm);
            validation.leeway = LEEWAY_SECONDS.into();
            validation.validate_nbf = true;
            // Compared later: the error has the audiences, and several are accepted.
            validation.validate_aud = false;
            validation.set_issuer(issuers);
            validation.set_required_spec_claims(required);
            match jsonwebtoken::decode::<T>(token, &key.key, &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => match error.kind() {
                    ErrorKind::ExpiredSignature => return Err(InvalidToken::Expired),
                    ErrorKind::ImmatureSignature => return Err(InvalidToken::NotYetValid),
                    _ => {}
                },
            }
        }
        Err(InvalidToken::Unknown)
    }

    /// Returns the document of `/openid/v1/jwks`: the keys, for clients that verify tokens.
    pub fn keys_document(&self) -> Value {
        let keys: Vec<&Value> = self.verifying.values().map(|key| &key.jwk).collect();
        json!({"keys": keys})
    }

    /// Returns the document of `/.well-known/openid-configuration`. `address` is the host and port by which
    /// the client reaches this server.
    pub fn configuration_document(&self, address: &str) -> Value {
        let mut algorithms: Vec<&Value> = self.verifying.values().map(|k| &k.jwk["alg"]).collect();
        algorithms.sort_by_key(|algorithm| algorithm.as_str());
        algorithms.dedup();
        json!({
            "issuer": self.name(),
            "jwks_uri": format!("https://{address}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

/// Returns the header of a token.
fn header(token: &str) -> Result<Header, InvalidToken> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(InvalidToken::Unknown);
    }
    jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::Unknown)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::service_account::claims::Reference;

    fn claims(issuer: &TokenIssuer, from: i64, until: i64) -> Claims {
        let now = Timestamp::now().as_second();
        Claims {
            aud: vec!["me".to_owned(), "you".to_owned()],
            exp: now + until,
            iat: now + from,
            iss: issuer.name().to_owned(),
            jti: "j".to_owned(),
            kubernetes: KubernetesClaims {
                namespace: "ns".to_owned(),
                node: None,
                pod: None,
                secret: None,
                serviceaccount: Reference {
                    name: "a".to_owned(),
                    uid: "u".to_owned(),
                },
                warnafter: None,
            },
            nbf: now + from,
            sub: "system:serviceaccount:ns:a".to_owned(),
        }
    }

    fn key() -> String {
        rcgen::KeyPair::generate().unwrap().serialize_pem()
    }

    fn issuer(key: &str, others: &[String]) -> TokenIssuer {
        let audiences = vec!["me".to_owned()];
        TokenIssuer::new(key, others, Vec::new(), audiences).unwrap()
    }

    #[test]
    fn signed_token_is_verified_for_its_audiences() {
        let issuer = issuer(&key(), &[]);
        let claims = claims(&issuer, 0, 60);
        let token = issuer.sign(&claims).unwrap();
        let verified = issuer.verify(&token, &[]);
        assert_eq!(verified, Ok((claims.clone(), vec!["me".to_owned()])));
        let requested = ["you".to_owned(), "them".to_owned()];
        let verified = issuer.verify(&token, &requested).unwrap();
        assert_eq!(verified.1, ["you"]);
        let verified = issuer.verify(&token, &requested[1..]).unwrap_err();
        assert_eq!(
            verified.to_string(),
            r#"token audiences ["me" "you"] is invalid for the target audiences ["them"]"#
        );
    }

    #[test]
    fn validity_has_a_leeway() {
        let issuer = issuer(&key(), &[]);
        for (from, until, expect) in [
            (-100, -50, Ok(())),
            (-100, -70, Err(InvalidToken::Expired)),
            (50, 100, Ok(())),
            (70, 100, Err(InvalidToken::NotYetValid)),
        ] {
            let token = issuer.sign(&claims(&issuer, from, until)).unwrap();
            let verified = issuer.verify(&token, &[]).map(drop);
            assert_eq!(verified, expect, "{from} {until}");
        }
    }

    #[test]
    fn only_tokens_of_pods_with_the_default_validity_for_this_server_are_extended() {
        let issuer = issuer(&key(), &[]);
        let (own, other) = (["me".to_owned()], ["me".to_owned(), "you".to_owned()]);
        let as_requested = |seconds| TokenLifetime {
            expires_after: seconds,
            warn_after: None,
        };
        let extended = TokenLifetime {
            expires_after: 31_536_000,
            warn_after: Some(3607),
        };
        assert_eq!(issuer.lifetime(3607, true, &own), extended);
        assert_eq!(issuer.lifetime(3607, false, &own), as_requested(3607));
        assert_eq!(issuer.lifetime(3607, true, &other), as_requested(3607));
        for seconds in [3600, 3606, 3608, 86_400] {
            assert_eq!(issuer.lifetime(seconds, true, &own), as_requested(seconds));
        }
        // The maximum applies before the extension: one below the default validity prevents it, another does not.
        let issuer = issuer.with_expiration_max(Some(3600));
        let validity = issuer.validity(3607);
        assert_eq!(issuer.lifetime(validity, true, &own), as_requested(3600));
        let issuer = issuer.with_expiration_max(Some(7200));
        let validity = issuer.validity(3607);
        assert_eq!(issuer.lifetime(validity, true, &own), extended);
        let issuer = issuer.with_extended_expiration(false);
        assert_eq!(issuer.lifetime(3607, true, &own), as_requested(3607));
    }

    #[test]
    fn tokens_of_another_key_need_that_key() {
        let (own, other) = (key(), key());
        let other_issuer = issuer(&other, &[]);
        let token = other_issuer.sign(&claims(&other_issuer, 0, 60)).unwrap();
        let alone = issuer(&own, &[]);
        assert_eq!(alone.verify(&token, &[]), Err(InvalidToken::Unknown));
        let accepting = issuer(&own, std::slice::from_ref(&other));
        assert!(accepting.verify(&token, &[]).is_ok());
        assert_eq!(
            accepting.keys_document()["keys"].as_array().unwrap().len(),
            2
        );
        let foreign = Claims {
            iss: "https://elsewhere".to_owned(),
            ..claims(&accepting, 0, 60)
        };
        let token = accepting.sign(&foreign).unwrap();
        assert_eq!(accepting.verify(&token, &[]), Err(InvalidToken::Unknown));
    }

    #[test]
    fn unsigned_token_is_unknown() {
        let issuer = issuer(&key(), &[]);
        let token = issuer.sign(&claims(&issuer, 0, 60)).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let changed = format!("{signed}x.{signature}");
        let unsigned = format!("{signed}.");
        let long = format!("{header}.{}.{signature}", "x".repeat(TOKEN_BYTES_MAX));
        for wrong in ["", "sesame", "a.b.c", &changed, &unsigned, &long] {
            assert_eq!(
                issuer.verify(wrong, &[]),
                Err(InvalidToken::Unknown),
                "{wrong}"
            );
        }
    }
}
