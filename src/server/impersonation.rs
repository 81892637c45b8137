//! Impersonation: whoever may do everything may ask to be taken for somebody else, by headers, as
//! `kubectl --as` does. Who asks is known by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response};

use crate::api::{
    SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED, Status, UserInfo,
};
use crate::http as http_room;
use crate::registry::authorization::{Action, authorize};

const ANY: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Nobody is taken for somebody else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// 403
    #[error("forbidden: User {0:?} cannot {1}: a credential is needed")]
    Forbidden(String, &'static str),
    /// 400, in upstream's words: it is said what the other one is, and not who.
    #[error("requested [{0}] without impersonating a user")]
    Nobody(String),
    /// 400
    #[error("a header of the impersonation is not visible ASCII")]
    Unreadable,
}

impl Refused {
    /// The answer.
    pub(super) fn response(&self, request: &HeaderMap) -> Response<Body> {
        let text = self.to_string();
        let status = match self {
            Self::Forbidden(..) => Status::failure(403, "Forbidden", text),
            Self::Nobody(_) | Self::Unreadable => Status::failure(400, "BadRequest", text),
        };
        http_room::error_response(request, &status)
    }
}

/// The user as whom `user` asks to act: another one, if the headers name one.
///
/// # Errors
/// `user` may not, the other one may not ask for `path`, or the headers do not say who it is to be.
pub(super) fn acting(
    user: Arc<UserInfo>,
    path: &str,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Refused> {
    let Some(asked) = asked(headers)? else {
        return Ok(user);
    };
    if !authorize(&user, Action::Objects).allowed {
        return Err(Refused::Forbidden(user.name.clone(), "impersonate anybody"));
    }
    match authorize(&asked, Action::Path(path)).allowed {
        true => Ok(Arc::new(asked)),
        false => Err(Refused::Forbidden(asked.name, "ask for this path")),
    }
}

/// The same where nobody is refused anything: `user`, or whom the headers name.
///
/// # Errors
/// The headers do not say who it is to be.
pub(super) fn acting_freely(
    user: &Arc<UserInfo>,
    headers: &HeaderMap,
) -> Result<Arc<UserInfo>, Refused> {
    Ok(asked(headers)?.map_or_else(|| Arc::clone(user), Arc::new))
}

/// Whom the headers name, if they name anybody.
fn asked(headers: &HeaderMap) -> Result<Option<UserInfo>, Refused> {
    // Cheap, because every request comes by here.
    let any = headers.keys().any(|key| key.as_str().starts_with(ANY));
    if !any {
        return Ok(None);
    }
    let text = |value: &HeaderValue| match value.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Refused::Unreadable),
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
        let asked = list(&groups, &extra, &uid);
        return match asked.is_empty() {
            true => Ok(None),
            false => Err(Refused::Nobody(asked)),
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

/// What is asked for, as upstream's object references print: kind, namespace, name, uid, version,
/// resource version and field path.
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

/// The groups of a service account that is named as a user.
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

/// A key with its `%XX` decoded; as it is when that is no text.
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

    fn check(user: UserInfo, lines: &[(&'static str, &'static str)]) -> Result<UserInfo, Refused> {
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
    fn who_asks_for_nobody_is_himself() {
        assert_eq!(check(admin(), &[]), Ok(admin()));
    }

    #[test]
    fn whoever_may_is_taken_for_another() {
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
        let nobody = check(admin(), &[(USER, SYSTEM_ANONYMOUS)]).unwrap();
        assert_eq!(nobody.groups, [SYSTEM_UNAUTHENTICATED]);
    }

    #[test]
    fn some_are_refused() {
        let told = check(UserInfo::anonymous(), &[(USER, "jane")]);
        let forbidden = Refused::Forbidden(SYSTEM_ANONYMOUS.to_owned(), "impersonate anybody");
        assert_eq!(told, Err(forbidden));
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static(USER),
            HeaderValue::from_static(SYSTEM_ANONYMOUS),
        )]);
        let told = acting(Arc::new(admin()), "/api", &headers);
        let forbidden = Refused::Forbidden(SYSTEM_ANONYMOUS.to_owned(), "ask for this path");
        assert_eq!(
            told.unwrap_err(),
            forbidden,
            "nobody may do what he himself may not"
        );
    }

    #[test]
    fn somebody_has_to_be_named() {
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
            let told = check(admin(), lines).unwrap_err();
            let expect = format!("requested {list} without impersonating a user");
            assert_eq!(told.to_string(), expect);
        }
        for lines in [&[(USER, "")][..], &[(UID, "")], &[("impersonated", "jane")]] {
            assert_eq!(check(admin(), lines), Ok(admin()), "{lines:?}");
        }
    }

    /// Whoever impersonates nobody in particular is still nobody, whatever groups he is put into.
    #[test]
    fn nobody_is_in_the_group_of_nobodies() {
        let lines = [(USER, SYSTEM_ANONYMOUS), (GROUP, SYSTEM_AUTHENTICATED)];
        let nobody = check(admin(), &lines).unwrap();
        assert_eq!(
            nobody.groups,
            [SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED]
        );
        let lines = [(USER, "jane"), (GROUP, SYSTEM_UNAUTHENTICATED)];
        assert_eq!(
            check(admin(), &lines).unwrap().groups,
            [SYSTEM_UNAUTHENTICATED]
        );
    }
}
