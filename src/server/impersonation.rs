//! Impersonation: whoever may do everything may ask to be taken for somebody else, by headers, as
//! `kubectl --as` does. Who asks is known by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Response};

use crate::api::{
    SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED, Status, UserInfo,
};
use crate::http as http_room;
use crate::registry::authorization::{Action, authorize};

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
    /// 500, as upstream: the headers say less than they must, or what cannot be read.
    #[error("Internal error occurred: {0}")]
    Unclear(&'static str),
}

impl Refused {
    /// The answer.
    pub(super) fn response(&self, request: &HeaderMap) -> Response<Body> {
        let text = self.to_string();
        let status = match self {
            Self::Forbidden(..) => Status::failure(403, "Forbidden", text),
            Self::Unclear(_) => Status::failure(500, "InternalError", text),
        };
        http_room::refusal(request, &status)
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
    if !headers.contains_key(USER) {
        // Cheap, because every request comes by here.
        return match headers.contains_key(GROUP) || headers.contains_key(UID) {
            true => Err(Refused::Unclear(
                "requested groups or a uid without impersonating a user",
            )),
            false => Ok(user),
        };
    }
    if !authorize(&user, Action::Objects).allowed {
        return Err(Refused::Forbidden(user.name.clone(), "impersonate anybody"));
    }
    let asked = asked(headers)?;
    match authorize(&asked, Action::Path(path)).allowed {
        true => Ok(Arc::new(asked)),
        false => Err(Refused::Forbidden(asked.name, "ask for this path")),
    }
}

fn asked(headers: &HeaderMap) -> Result<UserInfo, Refused> {
    let unreadable = |_| Refused::Unclear("a header of the impersonation is not visible ASCII");
    let one = |name: &str| match headers.get(name) {
        Some(value) => value.to_str().map(str::to_owned).map_err(unreadable),
        None => Ok(String::new()),
    };
    let name = one(USER)?;
    let mut groups = Vec::new();
    for value in headers.get_all(GROUP) {
        groups.push(value.to_str().map_err(unreadable)?.to_owned());
    }
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in headers {
        if let Some(key) = key.as_str().strip_prefix(EXTRA) {
            let value = value.to_str().map_err(unreadable)?.to_owned();
            extra.entry(decoded(key)).or_default().push(value);
        }
    }
    if groups.is_empty() {
        groups.extend(account_groups(&name));
    }
    let known = |group: &String| group == SYSTEM_AUTHENTICATED || group == SYSTEM_UNAUTHENTICATED;
    if !groups.iter().any(known) {
        groups.push(match name == SYSTEM_ANONYMOUS {
            true => SYSTEM_UNAUTHENTICATED.to_owned(),
            false => SYSTEM_AUTHENTICATED.to_owned(),
        });
    }
    Ok(UserInfo {
        name,
        uid: one(UID)?,
        groups,
        extra,
    })
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
    use http::{HeaderName, HeaderValue};

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
        let told = check(admin(), &[(GROUP, "dev")]);
        assert!(matches!(told, Err(Refused::Unclear(_))), "{told:?}");
    }
}
