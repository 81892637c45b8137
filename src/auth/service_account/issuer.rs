//! Tokens of service accounts: JWTs that name the account, what they are bound to, and whom they are
//! for. Whether the account still exists is asked elsewhere.

use std::collections::BTreeMap;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::keys::{InvalidKeys, SigningKey, VerifyingKey};
use super::{InvalidToken, secret_tokens};

/// Whose tokens they are unless configured, as upstream's tools choose.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How far clocks may be apart, in seconds.
const LEEWAY_SECONDS: u64 = 60;
/// Longer texts are no tokens of ours.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// For whom it is.
    pub(crate) aud: Vec<String>,
    /// Until when.
    pub(crate) exp: i64,
    /// Since when.
    pub(crate) iat: i64,
    pub(crate) iss: String,
    /// A name of its own.
    #[serde(default)]
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// What a token says in Kubernetes' own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    pub(crate) serviceaccount: Reference,
}

/// One object, and not another of its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// Makes and reads tokens.
#[derive(Debug)]
pub struct TokenIssuer {
    signing: SigningKey,
    /// By their names; the signing key's is among them.
    verifying: BTreeMap<String, VerifyingKey>,
    /// The first is this one's; tokens of the others are taken too.
    issuers: Vec<String>,
    audiences: Vec<String>,
}

impl TokenIssuer {
    /// One that signs with the private key `signing`, in PEM, and believes also what the keys in
    /// `others` have signed. No issuers are [the default](DEFAULT_ISSUER); no audiences are the issuers.
    ///
    /// # Errors
    /// A text that holds no key of use; with it which of `others` that is, `None` for `signing`.
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
        })
    }

    /// One with a key that nobody else has and nothing keeps.
    pub(crate) fn ephemeral() -> Self {
        let key = rcgen::KeyPair::generate().expect("the system gives random numbers");
        Self::new(&key.serialize_pem(), &[], Vec::new(), Vec::new())
            .unwrap_or_else(|(_, error)| panic!("a new key is one: {error}"))
    }

    /// Whom tokens are for when nobody is named: this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Whose the tokens are that are made here.
    pub(crate) fn name(&self) -> &str {
        &self.issuers[0]
    }

    /// Signs `claims`.
    ///
    /// # Errors
    /// The key cannot sign, in words.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, String> {
        let header = Header {
            typ: None,
            kid: Some(self.signing.id.clone()),
            ..Header::new(self.signing.algorithm)
        };
        let signed = jsonwebtoken::encode(&header, claims, &self.signing.key);
        signed.map_err(|error| error.to_string())
    }

    /// What `token` says, if one of the keys has signed it and it holds now, for one of `audiences`
    /// (none: this server); with it those of the audiences that it is for.
    ///
    /// # Errors
    /// [`InvalidToken::NotOurs`] when somebody else's word counts; else what is wrong with it.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Claims, Vec<String>), InvalidToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(InvalidToken::NotOurs);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::NotOurs)?;
        let required = ["exp", "iss", "sub"];
        let claims: Claims = self.signed(token, &header, &self.issuers, &required)?;
        let meant = self.intended(&claims.aud, audiences)?;
        Ok((claims, meant))
    }

    /// The same for a token that is stored in a Secret: it does not expire, and it is for this server.
    ///
    /// # Errors
    /// [`InvalidToken::NotOurs`] unless one of the keys has signed such a token.
    pub(super) fn verify_secret_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<(Kubernetes, Vec<String>), InvalidToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(InvalidToken::NotOurs);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::NotOurs)?;
        let issuers = [secret_tokens::ISSUER.to_owned()];
        let claims: secret_tokens::Claims =
            self.signed(token, &header, &issuers, &["iss", "sub"])?;
        let bound = claims.into_bound().ok_or(InvalidToken::NotOurs)?;
        let meant = self.intended(&self.audiences, audiences)?;
        Ok((bound, meant))
    }

    /// Returns those of the audiences asked for (none: this server) that a token is for.
    fn intended(&self, token: &[String], asked: &[String]) -> Result<Vec<String>, InvalidToken> {
        let asked = match asked {
            [] => &self.audiences,
            named => named,
        };
        let meant = token.iter().filter(|one| asked.contains(one));
        let meant: Vec<String> = meant.cloned().collect();
        match meant.is_empty() {
            true => Err(InvalidToken::Audiences {
                token: token.to_vec(),
                asked: asked.to_vec(),
            }),
            false => Ok(meant),
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
            validation.leeway = LEEWAY_SECONDS;
            validation.validate_nbf = true;
            // Told apart from the others, and against several at once.
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
        Err(InvalidToken::NotOurs)
    }

    /// `/openid/v1/jwks`: the keys, for those who verify tokens themselves.
    pub fn keys_document(&self) -> Value {
        let keys: Vec<&Value> = self.verifying.values().map(|key| &key.jwk).collect();
        json!({"keys": keys})
    }

    /// `/.well-known/openid-configuration`; `address` is where the client reaches this server.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn claims(issuer: &TokenIssuer, from: i64, until: i64) -> Claims {
        let now = Timestamp::now().as_second();
        Claims {
            aud: vec!["me".to_owned(), "you".to_owned()],
            exp: now + until,
            iat: now + from,
            iss: issuer.name().to_owned(),
            jti: "j".to_owned(),
            kubernetes: Kubernetes {
                namespace: "ns".to_owned(),
                node: None,
                pod: None,
                secret: None,
                serviceaccount: Reference {
                    name: "a".to_owned(),
                    uid: "u".to_owned(),
                },
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
    fn what_is_signed_is_read() {
        let issuer = issuer(&key(), &[]);
        let claims = claims(&issuer, 0, 60);
        let token = issuer.sign(&claims).unwrap();
        let told = issuer.verify(&token, &[]);
        assert_eq!(told, Ok((claims.clone(), vec!["me".to_owned()])));
        let asked = ["you".to_owned(), "them".to_owned()];
        let told = issuer.verify(&token, &asked).unwrap();
        assert_eq!(told.1, ["you"]);
        let told = issuer.verify(&token, &asked[1..]).unwrap_err();
        assert_eq!(
            told.to_string(),
            r#"token audiences ["me" "you"] is invalid for the target audiences ["them"]"#
        );
    }

    #[test]
    fn times_are_kept() {
        let issuer = issuer(&key(), &[]);
        for (from, until, expect) in [
            (-100, -50, Ok(())),
            (-100, -70, Err(InvalidToken::Expired)),
            (50, 100, Ok(())),
            (70, 100, Err(InvalidToken::NotYetValid)),
        ] {
            let token = issuer.sign(&claims(&issuer, from, until)).unwrap();
            let told = issuer.verify(&token, &[]).map(drop);
            assert_eq!(told, expect, "{from} {until}");
        }
    }

    #[test]
    fn others_are_believed_when_their_keys_are_given() {
        let (ours, theirs) = (key(), key());
        let their = issuer(&theirs, &[]);
        let token = their.sign(&claims(&their, 0, 60)).unwrap();
        let alone = issuer(&ours, &[]);
        assert_eq!(alone.verify(&token, &[]), Err(InvalidToken::NotOurs));
        let friendly = issuer(&ours, std::slice::from_ref(&theirs));
        assert!(friendly.verify(&token, &[]).is_ok());
        assert_eq!(
            friendly.keys_document()["keys"].as_array().unwrap().len(),
            2
        );
        let foreign = Claims {
            iss: "https://elsewhere".to_owned(),
            ..claims(&friendly, 0, 60)
        };
        let token = friendly.sign(&foreign).unwrap();
        assert_eq!(friendly.verify(&token, &[]), Err(InvalidToken::NotOurs));
    }

    #[test]
    fn what_nobody_signed_is_not_ours() {
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
                Err(InvalidToken::NotOurs),
                "{wrong}"
            );
        }
    }
}
