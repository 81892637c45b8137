//! Authorization: what a user may do. One policy answers both the requests themselves and the reviews
//! that ask about requests, so that neither says what the other does not do. Who the user is, is not
//! decided here.

use crate::api::{SYSTEM_ANONYMOUS, SYSTEM_UNAUTHENTICATED, UserInfo};

/// Paths that anybody may ask; upstream's bootstrap policy allows the same to
/// `system:unauthenticated`, and nothing below them.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// What a user wants to do: something to objects, or something with a path that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Something to objects. Which ones makes no difference yet.
    Objects,
    /// A request for this path.
    Path(&'a str),
}

/// Whether it may be done, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether.
    pub allowed: bool,
    /// Why, for people.
    pub reason: &'static str,
}

/// What a user may do at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// Everything.
    Everything,
    /// These paths.
    Paths(&'static [&'static str]),
}

/// What `user` may do: whoever has a credential everything, anybody else what is public.
pub fn permissions(user: &UserInfo) -> Permissions {
    let stranger = |group: &String| group == SYSTEM_UNAUTHENTICATED;
    match user.name == SYSTEM_ANONYMOUS || user.groups.iter().any(stranger) {
        true => Permissions::Paths(PUBLIC_PATHS),
        false => Permissions::Everything,
    }
}

/// Whether `user` may do `action`.
pub fn authorize(user: &UserInfo, action: Action<'_>) -> Decision {
    let (allowed, reason) = match (permissions(user), action) {
        (Permissions::Everything, _) => (true, "every authenticated user may do everything here"),
        (Permissions::Paths(public), Action::Path(path)) if public.contains(&path) => {
            (true, "everybody may ask for this path")
        }
        (Permissions::Paths(_), _) => (false, "a credential is needed"),
    };
    Decision { allowed, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_all_it_takes() {
        let jane = UserInfo {
            name: "jane".to_owned(),
            ..UserInfo::default()
        };
        let anonymous = UserInfo::anonymous();
        let grouped = UserInfo {
            groups: anonymous.groups.clone(),
            ..jane.clone()
        };
        for (user, action, allowed) in [
            (&jane, Action::Objects, true),
            (&jane, Action::Path("/metrics"), true),
            (&anonymous, Action::Objects, false),
            (&anonymous, Action::Path("/healthz"), true),
            (&anonymous, Action::Path("/healthz/etcd"), false),
            (&anonymous, Action::Path("/metrics"), false),
            (&grouped, Action::Objects, false),
        ] {
            let told = authorize(user, action);
            assert_eq!(told.allowed, allowed, "{} {action:?}", user.name);
        }
    }
}
