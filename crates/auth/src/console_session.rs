//! Sessions of the console: a one-time code is exchanged for a bearer token, which authenticates the requests of a browser.
//! Codes and sessions are in memory only.
//!
//! A session has a bearer token and no cookie: a browser sends the cookies of a host to all its ports, and to the server for
//! requests that pages of other servers on that host make.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::credential::Credential;
use crate::session_check::SessionCheck;
use crate::token_file::TokenDigest;
use crate::unauthorized::Unauthorized;
use watchet_api::UserInfo;

/// How long a code is valid, in seconds.
pub const LOGIN_CODE_SECONDS: i64 = 15 * 60;
/// How long a session is valid, in seconds.
pub const SESSION_SECONDS: i64 = 12 * 60 * 60;
/// The maximum number of codes, and of sessions; a further one replaces the one that expires first.
const ENTRIES_MAX: usize = 256;
/// What the tokens of sessions begin with.
const TOKEN_PREFIX: &str = "watchet-console-";

/// The identity of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The credential that requested the session, which is valid only as long as this one; `None` for the link that the
    /// server prints.
    pub credential: Option<Credential>,
}

/// An identity until a time, in Unix seconds.
struct Entry {
    identity: SessionIdentity,
    expires: i64,
    /// The session that requested this one, which ends with it.
    parent: Option<TokenDigest>,
}

type Entries = HashMap<TokenDigest, Entry>;

/// The valid codes and sessions.
#[derive(Default)]
pub struct ConsoleSessions {
    codes: Mutex<Entries>,
    sessions: Mutex<Entries>,
}

/// A new session.
#[derive(Clone)]
pub struct NewSession {
    /// Its bearer token.
    pub token: String,
    /// Its user.
    pub user: Arc<UserInfo>,
    /// Its end in Unix seconds.
    pub expires: i64,
}

/// The session of a request, before the check of the credential that requested it.
#[derive(Clone)]
pub struct ConsoleSession {
    user: Arc<UserInfo>,
    credential: Credential,
}

impl ConsoleSessions {
    /// Returns a new code for a login with this identity at `now`, in Unix seconds. The identity of a session is passed on
    /// with the credential of that session; the new session ends with it.
    pub fn new_code(&self, mut identity: SessionIdentity, now: i64) -> String {
        let mut parent = None;
        if let Some(Credential::ConsoleSession { digest, .. }) = &identity.credential {
            parent = Some(*digest);
            let requested_by = self.identity(*digest, now);
            identity.credential = requested_by.and_then(|session| session.credential);
        }
        let code = random_text();
        let entry = Entry {
            identity,
            expires: now + LOGIN_CODE_SECONDS,
            parent,
        };
        insert(&mut self.codes.lock(), TokenDigest::new(&code), entry, now);
        code
    }

    /// Exchanges a code for a session. The code cannot be used again.
    ///
    /// # Errors
    /// The code is unknown, was used before, or has expired.
    pub fn log_in(&self, code: &str, now: i64) -> Result<NewSession, Unauthorized> {
        let entry = self.codes.lock().remove(&TokenDigest::new(code));
        let entry = entry.filter(|entry| now <= entry.expires);
        let sessions = self.sessions.lock();
        let entry = entry.filter(|entry| is_open(&sessions, entry.parent, now));
        drop(sessions);
        let Some(Entry {
            identity, parent, ..
        }) = entry
        else {
            return Err(Unauthorized::new(
                "the login code of the console is unknown, was used before, or has expired",
            ));
        };
        let token = format!("{TOKEN_PREFIX}{}", random_text());
        let expires = now + SESSION_SECONDS;
        let user = Arc::clone(&identity.user);
        let entry = Entry {
            identity,
            expires,
            parent,
        };
        let digest = TokenDigest::new(&token);
        insert(&mut self.sessions.lock(), digest, entry, now);
        Ok(NewSession {
            token,
            user,
            expires,
        })
    }

    /// Ends the session with this token.
    pub fn log_out(&self, token: &str) {
        self.sessions.lock().remove(&TokenDigest::new(token));
    }

    /// Returns the session with this token; `None` if it is the token of no session.
    pub(crate) fn session(self: &Arc<Self>, token: &str, now: i64) -> Option<ConsoleSession> {
        if !token.starts_with(TOKEN_PREFIX) {
            return None;
        }
        let digest = TokenDigest::new(token);
        Some(ConsoleSession {
            user: self.identity(digest, now)?.user,
            credential: Credential::ConsoleSession {
                digest,
                sessions: self.clone(),
            },
        })
    }

    fn identity(&self, digest: TokenDigest, now: i64) -> Option<SessionIdentity> {
        let sessions = self.sessions.lock();
        let entry = sessions.get(&digest)?;
        is_open(&sessions, Some(digest), now).then(|| entry.identity.clone())
    }
}

#[async_trait]
impl SessionCheck for ConsoleSessions {
    async fn check_session(&self, digest: TokenDigest, now: i64) -> Result<(), Unauthorized> {
        let Some(identity) = self.identity(digest, now) else {
            return Err(Unauthorized::new("the session of the console has ended"));
        };
        match identity.credential {
            // `new_code` stores no credential of a session, so this is not recursive more than once.
            Some(credential) => credential.check(now).await,
            None => Ok(()),
        }
    }
}

impl ConsoleSession {
    /// Returns the user and the credential, if it is valid at `now`, in Unix seconds. Cancel safe.
    ///
    /// # Errors
    /// The session has ended, or the credential that requested it is no longer valid.
    pub async fn authenticate(self, now: i64) -> Result<(Arc<UserInfo>, Credential), Unauthorized> {
        self.credential.check(now).await?;
        Ok((self.user, self.credential))
    }
}

/// Returns true if the session with this digest, the session that requested it, and so on, are valid at `now`; true for
/// `None`.
fn is_open(sessions: &Entries, mut digest: Option<TokenDigest>, now: i64) -> bool {
    // A session is newer than its parent, so this ends.
    while let Some(next) = digest {
        match sessions.get(&next) {
            Some(entry) if now <= entry.expires => digest = entry.parent,
            _ => return false,
        }
    }
    true
}

fn insert(entries: &mut Entries, digest: TokenDigest, entry: Entry, now: i64) {
    entries.retain(|_, entry| now <= entry.expires);
    if entries.len() >= ENTRIES_MAX {
        let first = entries.iter().min_by_key(|(_, entry)| entry.expires);
        if let Some(first) = first.map(|(digest, _)| *digest) {
            entries.remove(&first);
        }
    }
    entries.insert(digest, entry);
}

/// Returns 244 random bits of the operating system as text.
fn random_text() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

impl fmt::Debug for ConsoleSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleSessions")
            .field("sessions", &self.sessions.lock().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NewSession {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSession")
            .field("user", &self.user)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsoleSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleSession")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ConsoleSession {
    fn eq(&self, other: &Self) -> bool {
        self.credential == other.credential
    }
}

impl Eq for ConsoleSession {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_account::TokenIssuer;
    use crate::token_authenticator::TokenAuthenticator;
    use crate::token_file::TokenFile;

    fn identity(credential: Option<Credential>) -> SessionIdentity {
        SessionIdentity {
            user: Arc::new(UserInfo::unsecured()),
            credential,
        }
    }

    #[tokio::test]
    async fn code_is_valid_for_one_login_and_some_minutes() {
        let sessions = Arc::new(ConsoleSessions::default());
        let code = sessions.new_code(identity(None), 0);
        let session = sessions.log_in(&code, LOGIN_CODE_SECONDS).unwrap();
        assert_eq!(session.user, identity(None).user);
        assert!(sessions.log_in(&code, 1).is_err(), "used");
        let code = sessions.new_code(identity(None), 0);
        assert!(
            sessions.log_in(&code, LOGIN_CODE_SECONDS + 1).is_err(),
            "expired"
        );
        assert!(sessions.log_in("", 0).is_err());
    }

    /// A stolen session cannot be renewed beyond its end.
    #[tokio::test]
    async fn session_ends_with_the_session_that_requested_it() {
        let sessions = Arc::new(ConsoleSessions::default());
        let code = sessions.new_code(identity(None), 0);
        let first = sessions.log_in(&code, 0).unwrap();
        let of = |token: &str, now| {
            let session = sessions.session(token, now);
            session.map(|session| SessionIdentity {
                user: session.user,
                credential: Some(session.credential),
            })
        };
        let later = SESSION_SECONDS / 2;
        let code = sessions.new_code(of(&first.token, later).unwrap(), later);
        let second = sessions.log_in(&code, later).unwrap();
        let unused = sessions.new_code(of(&second.token, later).unwrap(), later);
        assert!(of(&second.token, SESSION_SECONDS).is_some());
        assert!(of(&second.token, SESSION_SECONDS + 1).is_none(), "by time");
        sessions.log_out(&first.token);
        assert!(of(&second.token, later).is_none(), "by logout");
        assert!(sessions.log_in(&unused, later).is_err(), "and its codes");
    }

    #[tokio::test]
    async fn session_ends_by_logout_and_by_time() {
        let sessions = Arc::new(ConsoleSessions::default());
        let log_in = || {
            let code = sessions.new_code(identity(None), 0);
            sessions.log_in(&code, 0).unwrap()
        };
        let (one, other) = (log_in(), log_in());
        let found = sessions.session(&one.token, SESSION_SECONDS).unwrap();
        let (_, credential) = found.authenticate(SESSION_SECONDS).await.unwrap();
        let late = SESSION_SECONDS + 1;
        assert_eq!(sessions.session(&one.token, late), None);
        assert!(credential.check(late).await.is_err());
        assert_eq!(credential.check(1).await, Ok(()));
        sessions.log_out(&one.token);
        assert!(credential.check(1).await.is_err());
        assert_eq!(sessions.session(&one.token, 1), None);
        assert!(sessions.session(&other.token, 1).is_some());
    }

    #[tokio::test]
    async fn session_is_valid_only_as_long_as_the_credential_that_requested_it() {
        let file = |text| TokenFile::parse(text).unwrap();
        let tokens = TokenAuthenticator::new(Some(file("t1,ann,1")), TokenIssuer::ephemeral());
        let tokens = Arc::new(tokens);
        let sessions = Arc::new(ConsoleSessions::default());
        let parent = Credential::StaticToken {
            digest: TokenDigest::new("t1"),
            tokens: Arc::clone(&tokens),
        };
        let code = sessions.new_code(identity(Some(parent)), 0);
        let session = sessions.log_in(&code, 0).unwrap();
        let found = sessions.session(&session.token, 1).unwrap();
        let (_, credential) = found.authenticate(1).await.unwrap();
        // A link that this session requests has the session's credential.
        let code = sessions.new_code(identity(Some(credential.clone())), 1);
        let second = sessions.log_in(&code, 1).unwrap();
        let found = sessions.session(&second.token, 1).unwrap();
        let (_, second) = found.authenticate(1).await.unwrap();
        assert_eq!(second.check(1).await, Ok(()));
        tokens.replace_token_file(file("t2,bob,2"));
        assert!(second.check(1).await.is_err());
    }

    #[test]
    fn number_of_codes_is_bounded() {
        let sessions = ConsoleSessions::default();
        let first = sessions.new_code(identity(None), 0);
        for now in 1..=ENTRIES_MAX as i64 {
            sessions.new_code(identity(None), now);
        }
        assert_eq!(sessions.codes.lock().len(), ENTRIES_MAX);
        assert!(sessions.log_in(&first, 1).is_err());
    }
}
