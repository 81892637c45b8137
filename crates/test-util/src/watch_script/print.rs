//! Prints scripts.

use std::collections::BTreeSet;

use super::need::Need;
use super::needs::needs;
use super::script::{Action, Script};

impl Script {
    /// Formats actions as a script.
    pub fn print(comment: &str, actions: &[Action]) -> String {
        let needs: BTreeSet<&str> = needs(actions).into_iter().map(Need::name).collect();
        let mut text = format!("# {comment}\n");
        if !needs.is_empty() {
            let needs: Vec<_> = needs.into_iter().collect();
            text += &format!("needs: {}\n", needs.join(", "));
        }
        for action in actions {
            text += &format!("{action}\n");
        }
        text
    }
}
