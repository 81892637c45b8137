//! Which node a user is.

use watchet_api::UserInfo;

/// The group of all nodes.
const GROUP: &str = "system:nodes";

/// What the user name of a node begins with; the name of the node follows.
const USER_PREFIX: &str = "system:node:";

/// Returns the name of the node that `user` is, which is empty if its user name has none; `None` if it is not a node: a
/// node has the group `system:nodes` and a user name that begins with `system:node:`.
pub fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(USER_PREFIX)?;
    user.groups
        .iter()
        .any(|group| group == GROUP)
        .then_some(name)
}
