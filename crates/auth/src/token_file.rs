//! Bearer tokens from upstream's CSV file: `token,user,uid[,"group1,group2"]`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use sha2::{Digest as _, Sha256};

use watchet_api::UserInfo;

/// The salt of the digests of this process.
static SALT: LazyLock<uuid::Uuid> = LazyLock::new(uuid::Uuid::new_v4);

/// The salted SHA-256 digest of a token, the key of [`TokenFile`]. The timing of a lookup depends only on digests,
/// which clients can neither choose nor compute, so no constant-time comparison is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of `token`.
    pub fn new(token: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(SALT.as_bytes());
        hasher.update(token);
        Self(hasher.finalize().into())
    }
}

/// The accepted tokens and their users.
pub struct TokenFile {
    users: HashMap<TokenDigest, Arc<UserInfo>>,
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenFile({} tokens)", self.users.len())
    }
}

/// An invalid line of the file. The message never contains the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct InvalidTokenFile {
    /// Counted from 1.
    pub line: usize,
    /// The problem and its remedy.
    pub problem: &'static str,
}

impl TokenFile {
    /// Parses the file's text. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// A line is not a valid record, or has the token of an earlier line with another user.
    pub fn parse(text: &str) -> Result<Self, InvalidTokenFile> {
        let mut file = Self {
            users: HashMap::new(),
        };
        for (index, line) in text.lines().enumerate() {
            let invalid = |problem| InvalidTokenFile {
                line: index + 1,
                problem,
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, user) = record(line).map_err(invalid)?;
            let digest = TokenDigest::new(&token);
            if file.users.insert(digest, Arc::new(user)).is_some() {
                return Err(invalid(
                    "the token is that of an earlier line: give each user a different one",
                ));
            }
        }
        Ok(file)
    }

    /// Returns the user of the token with this digest.
    pub fn user(&self, token: TokenDigest) -> Option<Arc<UserInfo>> {
        self.users.get(&token).cloned()
    }
}

fn record(line: &str) -> Result<(String, UserInfo), &'static str> {
    let mut fields = fields(line)?
        .into_iter()
        .map(|field| field.trim().to_owned());
    let mut next = || fields.next().unwrap_or_default();
    let (token, user, uid, groups) = (next(), next(), next(), next());
    if token.is_empty() {
        return Err("the token is empty: write token,user,uid[,\"group1,group2\"]");
    }
    if user.is_empty() {
        return Err("the user is missing: write token,user,uid[,\"group1,group2\"]");
    }
    if fields.next().is_some() {
        return Err("there are more than four fields: quote the groups, \"group1,group2\"");
    }
    let groups = groups
        .split(',')
        .map(|group| group.trim().to_owned())
        .filter(|group| !group.is_empty())
        .collect();
    Ok((token, UserInfo::authenticated(user, uid, groups)))
}

/// Splits a CSV line (RFC 4180, without line breaks) into fields.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        let mut field = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next() {
                    Some('"') if chars.next_if_eq(&'"').is_some() => field.push('"'),
                    Some('"') => break,
                    Some(other) => field.push(other),
                    None => return Err("a quotation mark is not closed"),
                }
            }
            if chars.peek().is_some_and(|next| *next != ',') {
                return Err("text follows a closing quotation mark: end the field there");
            }
        } else {
            while let Some(other) = chars.next_if(|next| *next != ',') {
                field.push(other);
            }
        }
        fields.push(field);
        if chars.next().is_none() {
            return Ok(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_their_users() {
        let file = TokenFile::parse(
            "t1,jane,u1,\"dev,ops\"\r\n# a comment\n\nt2, joe ,u2\n\"t\"\"3\",kim,u3,dev\n",
        )
        .unwrap();
        let jane = file.user(TokenDigest::new("t1")).unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "u1"));
        assert_eq!(jane.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(file.user(TokenDigest::new("t2")).unwrap().name, "joe");
        assert_eq!(
            file.user(TokenDigest::new("t2")).unwrap().groups,
            ["system:authenticated"]
        );
        assert_eq!(
            file.user(TokenDigest::new("t\"3")).unwrap().groups,
            ["dev", "system:authenticated"]
        );
        for wrong in ["", "t", "t11", "jane", "# a comment"] {
            assert_eq!(file.user(TokenDigest::new(wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn wrong_lines_are_named_and_their_token_is_not() {
        for (text, line, problem) in [
            ("a,b,c\n,b,c", 2, "the token is empty"),
            ("secret", 1, "the user is missing"),
            ("secret,jane,u,dev,ops", 1, "more than four"),
            ("secret,jane,u,\"dev", 1, "not closed"),
            ("secret,jane,u,\"dev\"x", 1, "text follows"),
            ("secret,a,b\n\nsecret,c,d", 3, "earlier line"),
        ] {
            let error = TokenFile::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.problem.contains(problem), "{text:?}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
