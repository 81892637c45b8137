//! What webhooks made of objects, kept for a while so that a thousand watchers of one event, and all who list
//! what has not changed, cost one call. It decides who asks and what is forgotten; it asks nobody.
//!
//! # Invariants
//!
//! 1. Of each form one call at most is under way.
//! 2. What is kept of all definitions together takes [`BYTES_MAX`], or one object more; what is under way is
//!    bounded by the requests that wait for it.
//! 3. A failure is told to all who wait for it, and kept for nobody else.
//! 4. Nobody is given a form that was made more than [`AGE_MAX`] ago. A webhook may answer otherwise from one
//!    day to the next, with nothing in its definition to tell of that. (Upstream asks for each read that goes
//!    to storage, and never again for what is in its watch cache.)
//! 5. When a definition says something else, what was made by the old one is forgotten.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::versions::REVIEW_TIMEOUT;
use crate::api::{Object, ObjectKey, ResourceVersion};
use crate::registry::ConversionError;

/// How much of the objects of all definitions is kept in other versions than they are stored in: some twenty
/// thousand of the usual size.
const BYTES_MAX: usize = 64 << 20;

/// What one takes besides its object, about.
const ENTRY_BYTES: usize = 256;

/// How long a form is given to those who ask for it: as long as its webhook may take to make it, so that no
/// client can rely on anything newer.
const AGE_MAX: Duration = REVIEW_TIMEOUT;

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
    form: Form,
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
            _ => Err(ConversionError::shutting_down()),
        }
    }
}

/// The forms of all definitions that are kept or under way.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Forms>);

/// Those of one definition, as it is at one time.
#[derive(Debug)]
pub(super) struct Converted {
    pool: Arc<Pool>,
    /// Nobody else on the pool has this number.
    own: u64,
}

#[derive(Debug, Default)]
struct Forms {
    all: HashMap<(u64, Form), Kept>,
    /// Those that are made, the one that was asked for longest ago first.
    by_use: BTreeMap<u64, (u64, Form)>,
    uses: u64,
    bytes: usize,
    definitions: u64,
}

#[derive(Debug)]
struct Kept {
    awaited: Awaited,
    /// None while it is under way.
    ready: Option<Ready>,
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    /// When it was asked for last, in uses.
    used: u64,
    bytes: usize,
    since: Instant,
}

impl Converted {
    /// None yet, of another definition than all others on the pool.
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        let mut forms = pool.0.lock();
        forms.definitions += 1;
        Self {
            own: forms.definitions,
            pool: pool.clone(),
        }
    }

    /// What comes of `form`, with the duty to make it if nobody else does.
    pub(super) fn ask(&self, form: Form) -> (Awaited, Option<Claim>) {
        let mut forms = self.pool.0.lock();
        if let Some(awaited) = forms.find(&(self.own, form.clone())) {
            return (awaited, None);
        }
        let (sender, receiver) = watch::channel(None);
        let awaited = Awaited(receiver);
        let kept = Kept {
            awaited: awaited.clone(),
            ready: None,
        };
        forms.all.insert((self.own, form.clone()), kept);
        (awaited, Some(Claim { form, sender }))
    }

    /// Tells what was made.
    pub(super) fn settle(&self, claim: Claim, made: Made) {
        let form = (self.own, claim.form);
        let mut forms = self.pool.0.lock();
        match &made {
            Ok(object) => forms.keep(form, object.memory() + ENTRY_BYTES),
            Err(_) => forms.forget(&form),
        }
        drop(forms);
        // Nobody may wait any longer.
        claim.sender.send_replace(Some(made));
    }
}

impl Drop for Converted {
    fn drop(&mut self) {
        let mut forms = self.pool.0.lock();
        let own = forms.all.keys().filter(|(of, _)| *of == self.own);
        let own: Vec<_> = own.cloned().collect();
        own.iter().for_each(|form| forms.forget(form));
    }
}

impl Forms {
    /// What comes of a form, unless it has to be made.
    fn find(&mut self, form: &(u64, Form)) -> Option<Awaited> {
        let now = self.next_use();
        let kept = self.all.get_mut(form)?;
        let Some(ready) = &mut kept.ready else {
            return Some(kept.awaited.clone());
        };
        if ready.since.elapsed() >= AGE_MAX {
            self.forget(form);
            return None;
        }
        let before = std::mem::replace(&mut ready.used, now);
        let awaited = kept.awaited.clone();
        let form = self.by_use.remove(&before).unwrap_or_else(|| form.clone());
        self.by_use.insert(now, form);
        Some(awaited)
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Keeps a form that is made, and of the others what there is room for.
    fn keep(&mut self, form: (u64, Form), bytes: usize) {
        let used = self.next_use();
        if let Some(kept) = self.all.get_mut(&form) {
            kept.ready = Some(Ready {
                used,
                bytes,
                since: Instant::now(),
            });
            self.by_use.insert(used, form);
            self.bytes += bytes;
        }
        while self.bytes > BYTES_MAX
            && self.by_use.len() > 1
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, form: &(u64, Form)) {
        let gone = self.all.remove(form);
        if let Some(ready) = gone.and_then(|gone| gone.ready) {
            self.by_use.remove(&ready.used);
            self.bytes -= ready.bytes;
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

    fn converted() -> Converted {
        Converted::new(&Arc::default())
    }

    /// Has a form made that takes so much.
    fn make(converted: &Converted, name: &str, bytes: usize) {
        let (_, claim) = converted.ask(form(name, 1));
        let made = object(&form(name, 1), bytes);
        converted.settle(claim.expect("it is not there"), Ok(made));
    }

    #[tokio::test]
    async fn one_makes_what_many_wait_for() {
        let converted = converted();
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
        let converted = converted();
        let (awaited, claim) = converted.ask(form("a", 1));
        let error = ConversionError("no".to_owned());
        converted.settle(claim.unwrap(), Err(error.clone()));
        assert_eq!(awaited.object().await.unwrap_err(), error);
        let (awaited, claim) = converted.ask(form("a", 1));
        drop(claim.expect("it is tried again"));
        assert!(awaited.object().await.is_err(), "nobody makes it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_made_anew() {
        let converted = converted();
        make(&converted, "a", 10);
        let bytes = converted.pool.0.lock().bytes;
        tokio::time::advance(AGE_MAX - Duration::from_millis(1)).await;
        let (kept, none) = converted.ask(form("a", 1));
        assert!(none.is_none(), "it is used, which makes it no younger");
        tokio::time::advance(Duration::from_millis(1)).await;
        let (_, claim) = converted.ask(form("a", 1));
        let claim = claim.expect("it is too old");
        assert_eq!(converted.pool.0.lock().bytes, 0);
        let newer = object(&form("a", 1), 10);
        converted.settle(claim, Ok(newer.clone()));
        let (now, none) = converted.ask(form("a", 1));
        assert!(none.is_none());
        assert!(Arc::ptr_eq(&now.object().await.unwrap(), &newer));
        assert!(!Arc::ptr_eq(&kept.object().await.unwrap(), &newer));
        assert_eq!(converted.pool.0.lock().bytes, bytes);
    }

    #[test]
    fn what_was_not_used_for_long_is_forgotten_whoever_made_it() {
        let pool = Arc::default();
        let (one, other) = (Converted::new(&pool), Converted::new(&pool));
        make(&one, "a", BYTES_MAX / 3);
        make(&other, "a", BYTES_MAX / 3);
        assert!(one.ask(form("a", 1)).1.is_none());
        make(&other, "b", BYTES_MAX / 3);
        assert!(one.ask(form("a", 1)).1.is_none());
        assert!(other.ask(form("b", 1)).1.is_none());
        assert!(other.ask(form("a", 1)).1.is_some());
        let forms = pool.0.lock();
        assert!(forms.bytes <= BYTES_MAX);
        assert_eq!(forms.by_use.len(), 2);
    }

    #[test]
    fn what_was_made_by_an_old_definition_goes_with_it() {
        let pool = Arc::default();
        let (old, other) = (Converted::new(&pool), Converted::new(&pool));
        make(&old, "a", 10);
        make(&other, "a", 10);
        let (_under_way, _claim) = old.ask(form("b", 1));
        drop(old);
        let left = |forms: &Forms| (forms.all.len(), forms.by_use.len());
        assert_eq!(left(&pool.0.lock()), (1, 1));
        drop(other);
        assert_eq!(left(&pool.0.lock()), (0, 0));
        assert_eq!(pool.0.lock().bytes, 0);
    }
}
