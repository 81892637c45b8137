//! Impersonation by headers, as `kubectl --as` sends them, after authentication.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::attributes::Attributes;
use super::authorizer::Authorizer;
use super::service_account::claims::{group_names, split_user_name};
use watchet_api::{
    SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED, Status, UserInfo,
};

const ANY: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The group and version of the impersonated attributes that are neither user nor group.
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHENTICATION_VERSION: &str = "v1";

/// The error of a rejected impersonation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ImpersonationError {
    /// 403
    #[error("{}", .0.message)]
    Forbidden(Box<Status>),
    /// 400, with upstream's message: attributes of a user without a user name.
    #[error("requested [{0}] without impersonating a user")]
    WithoutUser(String),
    /// 400
    #[error("a header of the impersonation is not visible ASCII")]
    Unreadable,
}

impl ImpersonationError {
    /// Returns the body of the response.
    pub fn status(&self) -> Status {
        match self {
            Self::Forbidden(status) => Status::clone(status),
            Self::WithoutUser(_) | Self::Unreadable => {
                Status::failure(400, "BadRequest", self.to_string())
            }
        }
    }
}

/// The user that a request acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    /// The impersonated user, or the authenticated one.
    pub user: Arc<UserInfo>,
    /// The permissions that the authenticated user needs to act as `user`; empty without impersonation.
    pub permissions: Vec<Attributes>,
}

/// Returns the user to act as: the impersonated one if the headers have one, else `user`.
///
/// # Errors
/// `user` may not impersonate that user, or the headers are invalid.
pub async fn impersonate(
    authorizer: &dyn Authorizer,
    user: &Arc<UserInfo>,
    headers: &HeaderMap,
) -> Result<Impersonation, ImpersonationError> {
    // Every request runs this check, so it must be cheap.
    let is_requested = headers.keys().any(|key| key.as_str().starts_with(ANY));
    let requested = match is_requested {
        true => requested_user(headers)?,
        false => None,
    };
    let Some(requested) = requested else {
        return Ok(Impersonation {
            user: Arc::clone(user),
            permissions: Vec::new(),
        });
    };
    let permissions = permissions(user, &requested);
    for attributes in &permissions {
        let decision = authorizer.authorize(attributes).await;
        if !decision.is_allowed() {
            let status = attributes.forbidden(decision.reason());
            return Err(ImpersonationError::Forbidden(Box::new(status)));
        }
    }
    Ok(Impersonation {
        user: Arc::new(complete(requested)),
        permissions,
    })
}

/// Returns the permissions that `user` needs to act as the `requested` user, in upstream's order.
fn permissions(user: &Arc<UserInfo>, requested: &UserInfo) -> Vec<Attributes> {
    let impersonate = |resource: &str, name: &str| Attributes {
        user: Arc::clone(user),
        verb: "impersonate".to_owned(),
        is_resource_request: true,
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let authentication = |attributes: Attributes| Attributes {
        api_group: AUTHENTICATION.to_owned(),
        api_version: AUTHENTICATION_VERSION.to_owned(),
        ..attributes
    };
    let mut all = vec![match split_user_name(&requested.name) {
        Some((namespace, name)) => Attributes {
            namespace: namespace.to_owned(),
            ..impersonate("serviceaccounts", name)
        },
        None => impersonate("users", &requested.name),
    }];
    let groups = requested.groups.iter();
    all.extend(groups.map(|group| impersonate("groups", group)));
    for (key, values) in &requested.extra {
        all.extend(values.iter().map(|value| Attributes {
            subresource: key.clone(),
            ..authentication(impersonate("userextras", value))
        }));
    }
    if !requested.uid.is_empty() {
        all.push(authentication(impersonate("uids", &requested.uid)));
    }
    all
}

/// Adds the groups that a user has implicitly: those of service accounts, and `system:authenticated` or
/// `system:unauthenticated`.
fn complete(mut requested: UserInfo) -> UserInfo {
    let groups = &mut requested.groups;
    if groups.is_empty()
        && let Some((namespace, _)) = split_user_name(&requested.name)
    {
        groups.extend(group_names(namespace));
    }
    let (own, sufficient) = match requested.name == SYSTEM_ANONYMOUS {
        true => (SYSTEM_UNAUTHENTICATED, &[SYSTEM_UNAUTHENTICATED][..]),
        false => (
            SYSTEM_AUTHENTICATED,
            &[SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED][..],
        ),
    };
    if !groups.iter().any(|group| sufficient.contains(&&**group)) {
        groups.push(own.to_owned());
    }
    requested
}

/// Returns the user of the headers, with the groups of the headers only.
fn requested_user(headers: &HeaderMap) -> Result<Option<UserInfo>, ImpersonationError> {
    let text = |value: &HeaderValue| match value.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ImpersonationError::Unreadable),
    };
    let one = |name: &str| headers.get(name).map_or_else(|| Ok(String::new()), text);
    let (name, uid) = (one(USER)?, one(UID)?);
    let groups = headers.get_all(GROUP).iter().map(text);
    let groups: Vec<String> = groups.collect::<Result<_, _>>()?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix(EXTRA) {
            extra.entry(decoded(key)).or_default().push(text(value)?);
        }
    }
    if name.is_empty() {
        let attributes = list(&groups, &extra, &uid);
        return match attributes.is_empty() {
            true => Ok(None),
            false => Err(ImpersonationError::WithoutUser(attributes)),
        };
    }
    Ok(Some(UserInfo {
        name,
        uid,
        groups,
        extra,
    }))
}

/// Formats the attributes as upstream prints object references: kind, namespace, name, uid,
/// version, resource version and field path.
fn list(groups: &[String], extra: &BTreeMap<String, Vec<String>>, uid: &str) -> String {
    let version = "authentication.k8s.io/v1";
    let groups = groups.iter().map(|group| format!("{{Group  {group}    }}"));
    let mut all: Vec<String> = groups.collect();
    for (key, values) in extra {
        let of_key = values.iter();
        all.extend(of_key.map(|value| format!("{{UserExtra  {value}  {version}  {key}}}")));
    }
    if !uid.is_empty() {
        all.push(format!("{{UID  {uid}  {version}  }}"));
    }
    all.join(" ")
}

/// Decodes the `%XX` escapes of a key; returns it unchanged if the result is not UTF-8.
pub(crate) fn decoded(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures_util::FutureExt as _;
    use http::HeaderName;
    use parking_lot::Mutex;

    use super::*;
    use crate::{AllowAuthenticated, Decision};

    fn check(
        user: UserInfo,
        lines: &[(&'static str, &'static str)],
    ) -> Result<UserInfo, ImpersonationError> {
        let impersonated = impersonate(&AllowAuthenticated, &Arc::new(user), &headers(lines))
            .now_or_never()
            .unwrap();
        impersonated.map(|impersonation| UserInfo::clone(&impersonation.user))
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn admin() -> UserInfo {
        UserInfo::authenticated("admin".to_owned(), String::new(), Vec::new())
    }

    #[test]
    fn without_headers_the_user_is_unchanged() {
        assert_eq!(check(admin(), &[]), Ok(admin()));
    }

    #[test]
    fn an_authorized_user_may_impersonate() {
        let lines = [
            (USER, "jane"),
            (UID, "u"),
            (GROUP, "dev"),
            (GROUP, "ops"),
            ("impersonate-extra-example.com%2fscope", "a"),
            ("impersonate-extra-example.com%2fscope", "b"),
        ];
        let jane = check(admin(), &lines).unwrap();
        assert_eq!((&*jane.name, &*jane.uid), ("jane", "u"));
        assert_eq!(jane.groups, ["dev", "ops", SYSTEM_AUTHENTICATED]);
        let scopes = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(
            jane.extra,
            [("example.com/scope".to_owned(), scopes)].into()
        );
        let account = check(admin(), &[(USER, "system:serviceaccount:ns:a")]).unwrap();
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            SYSTEM_AUTHENTICATED,
        ];
        assert_eq!(account.groups, groups);
        let anonymous = check(admin(), &[(USER, SYSTEM_ANONYMOUS)]).unwrap();
        assert_eq!(anonymous.groups, [SYSTEM_UNAUTHENTICATED]);
    }

    #[test]
    fn unauthorized_impersonation_is_rejected() {
        let error = check(UserInfo::anonymous(), &[(USER, "jane")]).unwrap_err();
        assert_eq!(error.status().code, 403);
        assert_eq!(
            error.to_string(),
            r#"users "jane" is forbidden: User "system:anonymous" cannot impersonate resource "users" in API group "" at the cluster scope: a credential is needed"#
        );
    }

    /// Allows everything except one resource, and records the attributes.
    #[derive(Debug, Default)]
    struct Recorder {
        denied: &'static str,
        seen: Mutex<Vec<Attributes>>,
    }

    #[async_trait]
    impl Authorizer for Recorder {
        async fn authorize(&self, attributes: &Attributes) -> Decision {
            self.seen.lock().push(attributes.clone());
            match attributes.resource == self.denied {
                true => Decision::NoOpinion("".into()),
                false => Decision::Allow("".into()),
            }
        }
    }

    #[tokio::test]
    async fn every_impersonated_attribute_needs_a_permission() {
        let lines = [
            (USER, "system:serviceaccount:ns:robot"),
            (GROUP, "dev"),
            ("impersonate-extra-scope", "a"),
            (UID, "u"),
        ];
        let user = Arc::new(admin());
        let authorizer = Recorder::default();
        let impersonated = impersonate(&authorizer, &user, &headers(&lines)).await;
        let impersonation = impersonated.unwrap();
        let groups = &impersonation.user.groups;
        assert_eq!(*groups, ["dev", SYSTEM_AUTHENTICATED]);
        let seen = authorizer.seen.into_inner();
        assert_eq!(impersonation.permissions, seen);
        let seen: Vec<String> = seen
            .iter()
            .map(|a| {
                assert!(a.is_resource_request && a.verb == "impersonate" && a.user == user);
                let (group, version) = (&a.api_group, &a.api_version);
                let (resource, subresource) = (&a.resource, &a.subresource);
                let (namespace, name) = (&a.namespace, &a.name);
                format!("{group}/{version} {resource}/{subresource} {namespace}/{name}")
            })
            .collect();
        let expected = [
            "/ serviceaccounts/ ns/robot",
            "/ groups/ /dev",
            "authentication.k8s.io/v1 userextras/scope /a",
            "authentication.k8s.io/v1 uids/ /u",
        ];
        assert_eq!(seen, expected);
        for denied in ["serviceaccounts", "groups", "userextras", "uids"] {
            let authorizer = Recorder {
                denied,
                ..Recorder::default()
            };
            let error = impersonate(&authorizer, &user, &headers(&lines)).await;
            let status = error.unwrap_err().status();
            assert_eq!(status.code, 403);
            assert!(status.message.starts_with(denied), "{}", status.message);
        }
    }

    #[test]
    fn attributes_need_a_user() {
        for (lines, list) in [
            (&[(GROUP, "dev")][..], "[{Group  dev    }]"),
            (
                &[(USER, ""), (GROUP, "a"), (GROUP, "b")],
                "[{Group  a    } {Group  b    }]",
            ),
            (
                &[("impersonate-extra-scopes", "all")],
                "[{UserExtra  all  authentication.k8s.io/v1  scopes}]",
            ),
            (&[(UID, "7")], "[{UID  7  authentication.k8s.io/v1  }]"),
        ] {
            let result = check(admin(), lines).unwrap_err();
            let expect = format!("requested {list} without impersonating a user");
            assert_eq!(result.to_string(), expect);
        }
        for lines in [&[(USER, "")][..], &[(UID, "")], &[("impersonated", "jane")]] {
            assert_eq!(check(admin(), lines), Ok(admin()), "{lines:?}");
        }
    }

    /// An impersonated anonymous user is never in the group of authenticated users.
    #[test]
    fn the_anonymous_user_is_not_authenticated() {
        let lines = [(USER, SYSTEM_ANONYMOUS), (GROUP, SYSTEM_AUTHENTICATED)];
        let anonymous = check(admin(), &lines).unwrap();
        assert_eq!(
            anonymous.groups,
            [SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED]
        );
        let lines = [(USER, "jane"), (GROUP, SYSTEM_UNAUTHENTICATED)];
        assert_eq!(
            check(admin(), &lines).unwrap().groups,
            [SYSTEM_UNAUTHENTICATED]
        );
    }
}
