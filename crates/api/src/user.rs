//! The user of a request. `server` authenticates it and attaches it to the request; authorization
//! is elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;

/// The name of the user of the server's own writes.
const SYSTEM_APISERVER: &str = "system:apiserver";

/// The group whose members may do everything.
pub const SYSTEM_MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const SYSTEM_AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated users.
pub const SYSTEM_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of a user without credentials.
pub const SYSTEM_ANONYMOUS: &str = "system:anonymous";
/// The name of all users of the port without authentication.
pub const SYSTEM_UNSECURED: &str = "system:unsecured";

/// A request's user, as Kubernetes' `user.Info`; an extension of every HTTP request, in an `Arc`.
/// It serializes as `UserInfo` of `authentication.k8s.io`, for reviews and webhooks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
pub struct UserInfo {
    /// The name, e.g. `kubernetes-admin` or `system:anonymous`.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A unique id of the user; empty if the credential has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups, including `system:authenticated` or `system:unauthenticated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Further attributes of the credential, such as `authentication.kubernetes.io/pod-name`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Returns an authenticated user and adds [`SYSTEM_AUTHENTICATED`] to its groups. As upstream, does not add it to
    /// [`SYSTEM_ANONYMOUS`] and to a member of [`SYSTEM_UNAUTHENTICATED`]: front proxies also forward the requests of
    /// unauthenticated users.
    pub fn authenticated(name: String, uid: String, mut groups: Vec<String>) -> Self {
        let is_decisive =
            |group: &str| [SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED].contains(&group);
        if name != SYSTEM_ANONYMOUS && !groups.iter().any(|group| is_decisive(group)) {
            groups.push(SYSTEM_AUTHENTICATED.to_owned());
        }
        Self {
            name,
            uid,
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// Returns the user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: SYSTEM_ANONYMOUS.to_owned(),
            uid: String::new(),
            groups: vec![SYSTEM_UNAUTHENTICATED.to_owned()],
            extra: BTreeMap::new(),
        }
    }

    /// Returns the user of the server's own writes, as upstream.
    pub fn server() -> Self {
        Self::authenticated(
            SYSTEM_APISERVER.to_owned(),
            String::new(),
            vec![SYSTEM_MASTERS.to_owned()],
        )
    }

    /// Returns the user of a request to the port without authentication, which allows everything.
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
    fn system_authenticated_is_added_once() {
        let groups = vec!["system:authenticated".to_owned(), "dev".to_owned()];
        let user = UserInfo::authenticated("jane".into(), String::new(), groups.clone());
        assert_eq!(user.groups, groups);
        let user = UserInfo::authenticated("jane".into(), String::new(), vec!["dev".into()]);
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
    }

    #[test]
    fn system_authenticated_is_not_added_to_unauthenticated_users() {
        let groups = vec!["system:unauthenticated".to_owned()];
        for name in ["system:anonymous", "jane"] {
            let user = UserInfo::authenticated(name.into(), String::new(), groups.clone());
            assert_eq!(user.groups, groups, "{name}");
        }
        let user = UserInfo::authenticated("system:anonymous".into(), String::new(), Vec::new());
        assert_eq!(user.groups, Vec::<String>::new());
    }
}
