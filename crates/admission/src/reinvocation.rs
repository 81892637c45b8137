//! Decides which mutating policies and webhooks the second round of mutating admission calls again, because something
//! changed the object after their call (`reinvocationPolicy: IfNeeded`). As in upstream's reinvocation contexts, the
//! second round calls only what the first round called.

use std::collections::BTreeSet;

use serde_json::Value;

/// The state that the rounds of one write share.
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// True in the second round.
    is_second: bool,
    /// True if a policy or a webhook has changed the object.
    is_needed: bool,
}

impl Reinvocation {
    /// Requires a second round.
    pub(super) fn require(&mut self) {
        self.is_needed = true;
    }

    /// Begins the second round. Returns false if there is none.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.is_needed && !self.is_second;
        self.is_second |= begins;
        begins
    }
}

/// The calls of one plugin, each identified by a key.
#[derive(Debug)]
pub(super) struct Calls<K> {
    /// Calls of reinvocable policies or webhooks, since which nothing has changed the object.
    called: BTreeSet<K>,
    /// Calls of reinvocable policies or webhooks, since which something has changed the object.
    due: BTreeSet<K>,
    /// The object after the plugin's last call.
    output: Option<Value>,
}

impl<K> Default for Calls<K> {
    fn default() -> Self {
        Self {
            called: BTreeSet::new(),
            due: BTreeSet::new(),
            output: None,
        }
    }
}

impl<K: Ord> Calls<K> {
    /// Begins a round with this object, which other plugins may have changed since the round before.
    pub(super) fn begin(&mut self, object: &Value) {
        if self.output.as_ref().is_some_and(|output| output != object) {
            self.changed();
        }
    }

    /// Ends a round with this object.
    pub(super) fn end(&mut self, object: &Value) {
        self.output = Some(object.clone());
    }

    /// Marks the calls so far as due, because the object has changed.
    pub(super) fn changed(&mut self) {
        self.due.append(&mut self.called);
    }

    /// Records the call of a reinvocable policy or webhook.
    pub(super) fn called(&mut self, key: K) {
        self.called.insert(key);
    }

    /// Returns true if this round calls the policy or webhook with this key.
    pub(super) fn should_call(&self, reinvocation: &Reinvocation, key: &K) -> bool {
        !reinvocation.is_second || self.due.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks which of the calls, by index, are due in the second round. `calls` has for each call whether it changes
    /// the object and whether it is reinvocable; `changed_later` is true if another plugin changes the object
    /// afterwards.
    fn check(calls: &[(bool, bool)], changed_later: bool, expect: &[usize]) {
        let (mut reinvocation, mut known) = (Reinvocation::default(), Calls::default());
        let mut object = json!({"round": 0});
        known.begin(&object);
        for (place, (changed, is_reinvocable)) in calls.iter().enumerate() {
            assert!(
                known.should_call(&reinvocation, &place),
                "the first round calls all"
            );
            if *changed {
                known.changed();
            }
            if *is_reinvocable {
                known.called(place);
            }
        }
        known.end(&object);
        reinvocation.require();
        assert!(reinvocation.begin() && !reinvocation.begin(), "two rounds");
        if changed_later {
            object["round"] = json!(1);
        }
        known.begin(&object);
        let due = (0..calls.len()).filter(|place| known.should_call(&reinvocation, place));
        assert!(due.eq(expect.iter().copied()), "{calls:?}: {known:?}");
    }

    #[test]
    fn only_later_changes_make_a_call_due_again() {
        check(&[(true, true)], false, &[]);
        check(&[(true, true)], true, &[0]);
        check(&[(false, true), (true, true)], false, &[0]);
        check(&[(false, false), (true, true)], false, &[]);
        check(&[(false, true), (false, true)], false, &[]);
        check(&[(false, true), (false, true)], true, &[0, 1]);
        check(&[(true, true), (true, true), (true, false)], false, &[0, 1]);
    }

    #[test]
    fn without_a_change_there_is_one_round() {
        assert!(!Reinvocation::default().begin());
    }
}
