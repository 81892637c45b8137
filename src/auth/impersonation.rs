//! Impersonation by headers, as `kubectl --as` sends them, after authentication.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response};

use crate::api::{
    SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED, Status, UserInfo,
};
use crate::http as http_layer;
use crate::registry::authorization::{Action, authorize};

const ANY: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// An impersonation was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImpersonationError {
    /// 403
    #[error("forbidden: User {0:?} cannot {1}: a credential is needed")]
    Forbidden(String, &'static str),
    /// 400, with upstream's message: attributes of a user without a user name.
    #[error("requested [{0}] without impersonating a user")]
    WithoutUser(String),
    /// 400
    #[error("a header of the impersonation is not visible ASCII")]
    Unreadable,
}

impl ImpersonationError {
    /// Returns the response.
    pub(super) fn response(&self, request: &HeaderMap) -> Response<Body> {
        let text = self.to_string();
        let status = match self {
            Self::Forbidden(..) => Status::failure(403, "Forbidden", text),
            Self::WithoutUser(_) | Self::Unreadable => Status::failure(400, "BadRequest", text),
        };
        http_layer::error_response(request, &status)
    }
}

/// Returns the user to act as: the impersonated one, if the headers have one.
///
/// # Errors
/// `user` may not impersonate, the impersonated user may not access `path`, or the headers are
/// invalid.
pub(super) fn acting(
    user: Arc<UserInfo>,
    path: &str,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, ImpersonationError> {
    let Some(impersonated) = impersonated(headers)? else {
        return Ok(user);
    };
    if !authorize(&user, Action::Objects).allowed {
        return Err(ImpersonationError::Forbidden(
            user.name.clone(),
            "impersonate a user",
        ));
    }
    match authorize(&impersonated, Action::Path(path)).allowed {
        true => Ok(Arc::new(impersonated)),
        false => Err(ImpersonationError::Forbidden(
            impersonated.name,
            "access this path",
        )),
    }
}

/// Returns the user to act as, without authorization: `user`, or the one in the headers.
///
/// # Errors
/// The headers are invalid.
pub(super) fn acting_freely(
    user: &Arc<UserInfo>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, ImpersonationError> {
    Ok(impersonated(headers)?.map_or_else(|| Arc::clone(user), Arc::new))
}

/// Returns the user in the headers, if any.
fn impersonated(headers: &HeaderMap) -> Result<Option<UserInfo>, ImpersonationError> {
    // Cheap, because every request passes here.
    let any = headers.keys().any(|key| key.as_str().starts_with(ANY));
    if !any {
        return Ok(None);
    }
    let text = |value: &HeaderValue| match value.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ImpersonationError::Unreadable),
    };
    let one = |name: &str| headers.get(name).map_or_else(|| Ok(String::new()), text);
    let (name, uid) = (one(USER)?, one(UID)?);
    let groups = headers.get_all(GROUP).iter().map(text);
    let mut groups: Vec<String> = groups.collect::<Result<_, _>>()?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix(EXTRA) {
            extra.entry(decoded(key)).or_default().push(text(value)?);
        }
    }
    if name.is_empty() {
        let impersonated = list(&groups, &extra, &uid);
        return match impersonated.is_empty() {
            true => Ok(None),
            false => Err(ImpersonationError::WithoutUser(impersonated)),
        };
    }
    if groups.is_empty() {
        groups.extend(account_groups(&name));
    }
    let (own, enough) = match name == SYSTEM_ANONYMOUS {
        true => (SYSTEM_UNAUTHENTICATED, &[SYSTEM_UNAUTHENTICATED][..]),
        false => (
            SYSTEM_AUTHENTICATED,
            &[SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED][..],
        ),
    };
    if !groups.iter().any(|group| enough.contains(&&**group)) {
        groups.push(own.to_owned());
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

/// Returns the groups of a service account whose user name is `name`.
fn account_groups(name: &str) -> Vec<String> {
    let account = name.strip_prefix("system:serviceaccount:");
    match account.and_then(|account| account.split_once(':')) {
        Some((namespace, _)) => vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        None => Vec::new(),
    }
}

/// Decodes the `%XX` escapes of a key; returns it unchanged if the result is not UTF-8.
fn decoded(key: &str) -> String {
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
    use http::HeaderName;

    use super::*;

    fn check(
        user: UserInfo,
        lines: &[(&'static str, &'static str)],
    ) -> Result<UserInfo, ImpersonationError> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
        acting(Arc::new(user), "/readyz", &headers).map(|user| UserInfo::clone(&user))
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
        let result = check(UserInfo::anonymous(), &[(USER, "jane")]);
        let forbidden =
            ImpersonationError::Forbidden(SYSTEM_ANONYMOUS.to_owned(), "impersonate a user");
        assert_eq!(result, Err(forbidden));
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static(USER),
            HeaderValue::from_static(SYSTEM_ANONYMOUS),
        )]);
        let result = acting(Arc::new(admin()), "/api", &headers);
        let forbidden =
            ImpersonationError::Forbidden(SYSTEM_ANONYMOUS.to_owned(), "access this path");
        assert_eq!(
            result.unwrap_err(),
            forbidden,
            "the anonymous user may not access the path"
        );
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
