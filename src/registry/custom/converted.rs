//! What webhooks made of objects, kept so that a thousand watchers of one event, and all who list what has
//! not changed, cost one call. It decides who asks and what is forgotten; it asks nobody.
//!
//! # Invariants
//!
//! 1. Of each form one call at most is under way.
//! 2. What is kept takes [`BYTES_MAX`], or one object more; what is under way is bounded by the requests
//!    that wait for it.
//! 3. A failure is told to all who wait for it, and kept for nobody else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::versions::ConversionError;
use crate::api::{Object, ObjectKey, ResourceVersion};

/// How much of one definition's objects is kept in other versions than they are stored in: some ten thousand
/// of the usual size.
const BYTES_MAX: usize = 32 << 20;

/// One object at one moment as one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// The [ordinal](super::Custom::ordinal) of the version.
    pub(super) version: u32,
    pub(super) key: ObjectKey,
    pub(super) at: ResourceVersion,
    /// The last state that somebody saw, told at the version at which the object changed or went.
    pub(super) deleted: bool,
}

type Made = Result<Arc<Object>, ConversionError>;

/// What comes of a form, once it has.
#[derive(Debug, Clone)]
pub(super) struct Awaited(watch::Receiver<Option<Made>>);

/// Who has to make a form, and tell of it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) form: Form,
    sender: watch::Sender<Option<Made>>,
}

impl Awaited {
    /// Waits for it.
    ///
    /// # Errors
    /// The conversion's, or that nobody will make it because the server stops.
    pub(super) async fn object(mut self) -> Made {
        let made = self.0.wait_for(Option::is_some).await;
        match made.as_deref() {
            Ok(Some(made)) => made.clone(),
            _ => Err(ConversionError("the server is shutting down".to_owned())),
        }
    }
}

/// The forms that are kept or under way.
#[derive(Debug, Default)]
pub(super) struct Converted(Mutex<Forms>);

#[derive(Debug, Default)]
struct Forms {
    all: HashMap<Form, Kept>,
    /// Those that are made, the one that was asked for longest ago first.
    by_use: BTreeMap<u64, Form>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    awaited: Awaited,
    /// When it was used last and what it takes, once it is made.
    made: Option<(u64, usize)>,
}

impl Converted {
    /// What comes of `form`, with the duty to make it if nobody else does.
    pub(super) fn ask(&self, form: Form) -> (Awaited, Option<Claim>) {
        let mut forms = self.0.lock();
        let now = forms.uses;
        forms.uses += 1;
        let Some(kept) = forms.all.get_mut(&form) else {
            let (sender, receiver) = watch::channel(None);
            let awaited = Awaited(receiver);
            let kept = Kept {
                awaited: awaited.clone(),
                made: None,
            };
            forms.all.insert(form.clone(), kept);
            return (awaited, Some(Claim { form, sender }));
        };
        let awaited = kept.awaited.clone();
        if let Some((used, _)) = &mut kept.made {
            let before = std::mem::replace(used, now);
            forms.by_use.remove(&before);
            forms.by_use.insert(now, form);
        }
        (awaited, None)
    }

    /// Tells what was made.
    pub(super) fn settle(&self, claim: Claim, made: Made) {
        let mut forms = self.0.lock();
        match &made {
            Ok(object) => forms.keep(&claim.form, object.memory()),
            Err(_) => drop(forms.all.remove(&claim.form)),
        }
        drop(forms);
        // Nobody may wait any longer.
        claim.sender.send_replace(Some(made));
    }
}

impl Forms {
    fn keep(&mut self, form: &Form, bytes: usize) {
        let now = self.uses;
        self.uses += 1;
        if let Some(kept) = self.all.get_mut(form) {
            kept.made = Some((now, bytes));
            self.by_use.insert(now, form.clone());
            self.bytes += bytes;
        }
        while self.bytes > BYTES_MAX
            && self.by_use.len() > 1
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            let gone = self.all.remove(&oldest);
            self.bytes -= gone
                .and_then(|gone| gone.made)
                .map_or(0, |(_, bytes)| bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ColumnSet, EventType};

    fn form(name: &str, at: u64) -> Form {
        Form {
            version: 1,
            key: ObjectKey::from(name),
            at: ResourceVersion::new(at),
            deleted: false,
        }
    }

    fn object(form: &Form, bytes: usize) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{}},"x":"{}"}}"#, "x".repeat(bytes));
        let columns = ColumnSet::default();
        let key = form.key.clone();
        let read = Object::decode(key, form.at, EventType::Added, json.as_bytes(), &columns);
        Arc::new(read.unwrap())
    }

    #[tokio::test]
    async fn one_makes_what_many_wait_for() {
        let converted = Converted::default();
        let (first, claim) = converted.ask(form("a", 1));
        let (second, none) = converted.ask(form("a", 1));
        assert!(none.is_none());
        let (_, of_another_version) = converted.ask(form("a", 2));
        assert!(of_another_version.is_some());
        let made = object(&form("a", 1), 1);
        converted.settle(claim.unwrap(), Ok(made.clone()));
        for awaited in [first, second, converted.ask(form("a", 1)).0] {
            assert!(Arc::ptr_eq(&awaited.object().await.unwrap(), &made));
        }
    }

    #[tokio::test]
    async fn a_failure_is_told_and_forgotten() {
        let converted = Converted::default();
        let (awaited, claim) = converted.ask(form("a", 1));
        let error = ConversionError("no".to_owned());
        converted.settle(claim.unwrap(), Err(error.clone()));
        assert_eq!(awaited.object().await.unwrap_err(), error);
        let (awaited, claim) = converted.ask(form("a", 1));
        drop(claim.expect("it is tried again"));
        assert!(awaited.object().await.is_err(), "nobody makes it");
    }

    #[test]
    fn what_was_not_used_for_long_is_forgotten() {
        let converted = Converted::default();
        let make = |name: &str| {
            let (_, claim) = converted.ask(form(name, 1));
            let made = object(&form(name, 1), BYTES_MAX / 3);
            converted.settle(claim.unwrap(), Ok(made));
        };
        let is_kept = |name: &str| converted.0.lock().all.contains_key(&form(name, 1));
        make("a");
        make("b");
        assert!(converted.ask(form("a", 1)).1.is_none());
        make("c");
        assert_eq!(["a", "b", "c"].map(is_kept), [true, false, true]);
        let forms = converted.0.lock();
        assert!(forms.bytes <= BYTES_MAX);
        assert_eq!(forms.by_use.len(), forms.all.len());
    }
}
