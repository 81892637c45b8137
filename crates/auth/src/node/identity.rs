//! `node_of`: the name of the node that a user authenticates as.

use watchet_api::UserInfo;

/// The group of all nodes.
const GROUP: &str = "system:nodes";

/// The prefix of the user name of a node, before the name of the node.
const USER_PREFIX: &str = "system:node:";

/// Returns the name of the node that `user` authenticates as; `None` if it is not a node. A node has the group
/// `system:nodes` and a user name that begins with `system:node:`. The result is empty if nothing follows that prefix.
pub fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(USER_PREFIX)?;
    user.groups
        .iter()
        .any(|group| group == GROUP)
        .then_some(name)
}
