//! Who makes a request. `server` finds out and attaches it to the request; what a user may do is
//! not said here.

use std::collections::BTreeMap;

use serde::Serialize;

/// The group of whoever may do everything.
pub const SYSTEM_MASTERS: &str = "system:masters";
/// The group of everybody who showed a valid credential.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who showed none.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of everybody who showed no credential.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// The name of everybody on the port without authentication.
pub const SYSTEM_UNSECURED: &str = "system:unsecured";

/// A request's user, as Kubernetes' `user.Info`; an extension of every HTTP request, in an `Arc`. It is
/// serialized as `authentication.k8s.io` tells of it, to reviews and to webhooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UserInfo {
    /// The name, e.g. `kubernetes-admin` or `system:anonymous`.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A name that is never given again; empty when the credential has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, among them one that tells whether the user was authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else the credential tells, by keys such as `authentication.kubernetes.io/pod-name`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// An authenticated user; the groups get [`SYSTEM_AUTHENTICATED`].
    pub fn authenticated(name: String, uid: String, mut groups: Vec<String>) -> Self {
        if !groups.iter().any(|group| group == SYSTEM_AUTHENTICATED) {
            groups.push(SYSTEM_AUTHENTICATED.to_owned());
        }
        Self {
            name,
            uid,
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// Somebody without a credential.
    pub fn anonymous() -> Self {
        Self {
            name: SYSTEM_ANONYMOUS.to_owned(),
            uid: String::new(),
            groups: vec![SYSTEM_UNAUTHENTICATED.to_owned()],
            extra: BTreeMap::new(),
        }
    }

    /// Whoever uses the port without authentication: it asks nothing and allows everything.
    pub fn unsecured() -> Self {
        Self::authenticated(
            SYSTEM_UNSECURED.to_owned(),
            String::new(),
            vec![SYSTEM_MASTERS.to_owned()],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticated_user_is_in_that_group_once() {
        let groups = vec!["system:authenticated".to_owned(), "dev".to_owned()];
        let user = UserInfo::authenticated("jane".into(), String::new(), groups.clone());
        assert_eq!(user.groups, groups);
        let user = UserInfo::authenticated("jane".into(), String::new(), vec!["dev".into()]);
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
    }
}
