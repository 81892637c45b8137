//! `ExternalAuthenticator`: the interface of authenticators of bearer tokens that other programs issue or
//! review.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::token_error::InvalidToken;
use watchet_api::UserInfo;

/// Authenticates bearer tokens that are neither in the token file nor service account tokens. Authentication may wait
/// for other programs.
#[async_trait]
pub trait ExternalAuthenticator: Send + Sync + fmt::Debug {
    /// Authenticates `token` for one of `audiences`. Returns `None` if the authenticator does not recognize the token
    /// and has no error to report.
    ///
    /// # Errors
    /// [`InvalidToken::Rejected`] if the token is invalid, [`InvalidToken::Unverified`] if that cannot be determined now.
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<ExternalUser>, InvalidToken>;

    /// Returns false if tokens of `issuer` are no longer accepted.
    fn accepts_issuer(&self, issuer: &str) -> bool;
}

/// The user of an external token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalUser {
    /// The user.
    pub user: Arc<UserInfo>,
    /// Those of the requested audiences that the token is for.
    pub audiences: Vec<String>,
    /// The end of the validity in Unix seconds; `None` if it is unknown.
    pub expires: Option<i64>,
    /// The issuer; `None` if it is unknown.
    pub issuer: Option<Arc<str>>,
}

impl ExternalUser {
    /// Returns the approximate memory that it takes in bytes, with the overhead of each allocation.
    #[must_use]
    pub fn size(&self) -> usize {
        const ALLOCATION: usize = 48;
        let strings = |all: &[String]| all.iter().map(|one| one.len() + ALLOCATION).sum::<usize>();
        let UserInfo {
            name,
            uid,
            groups,
            extra,
        } = &*self.user;
        let extra = extra.iter();
        let extra = extra.map(|(key, values)| key.len() + ALLOCATION + strings(values));
        name.len() + uid.len() + strings(groups) + extra.sum::<usize>() + strings(&self.audiences)
    }
}
