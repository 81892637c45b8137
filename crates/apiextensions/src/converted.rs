//! A cache of objects that webhooks have converted. A thousand watchers of one event, and all lists of unchanged
//! objects, need only one call. The cache decides which request calls the webhook, but does not call it.
//!
//! # Invariants
//!
//! 1. At most one call per form is in progress.
//! 2. The converted objects of all definitions together take [`BYTES_MAX`], which the last object may exceed; conversions in
//!    progress are bounded by the requests that wait for them.
//! 3. A failure is returned to all requests that wait for it, and not stored.
//! 4. A form is not used longer than [`AGE_MAX`] after its conversion. The implementation of a webhook may change while its
//!    definition does not. (Upstream calls the webhook for each read from storage, and never again for objects in its
//!    watch cache.)
//! 5. A change of a definition removes the forms that were converted by the old one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::review::REVIEW_TIMEOUT;
use watchet_api::{Object, ObjectKey, ResourceVersion};
use watchet_registry::ConversionError;

/// The memory limit of the converted objects of all definitions: some twenty thousand objects of the usual size.
const BYTES_MAX: usize = 64 << 20;

/// The approximate size of an entry without the object.
const ENTRY_BYTES: usize = 256;

/// The maximum age of a form. It equals the time limit of a conversion, so clients cannot rely on newer conversions.
const AGE_MAX: Duration = REVIEW_TIMEOUT;

/// The key of a form: one object at one version of storage, in one version of its definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// The [ordinal](super::custom::Custom::ordinal) of the version.
    pub(super) version: u32,
    pub(super) key: ObjectKey,
    pub(super) at: ResourceVersion,
    /// The last state before the object was deleted or no longer selected, at the version of that change.
    pub(super) deleted: bool,
}

type Made = Result<Arc<Object>, ConversionError>;

/// The result of the conversion of a form, when it is available.
#[derive(Debug, Clone)]
pub(super) struct Awaited(watch::Receiver<Option<Made>>);

/// The claim of a form: its holder must convert the form and publish the result.
#[derive(Debug)]
pub(super) struct Claim {
    form: Form,
    sender: watch::Sender<Option<Made>>,
}

impl Awaited {
    /// Waits for the result.
    ///
    /// # Errors
    /// The error of the conversion, or of a claim that was dropped because the server stops.
    pub(super) async fn object(mut self) -> Made {
        let made = self.0.wait_for(Option::is_some).await;
        match made.as_deref() {
            Ok(Some(made)) => made.clone(),
            _ => Err(ConversionError::shutting_down()),
        }
    }
}

/// The forms of all definitions that are stored or being converted.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Forms>);

/// The forms of one state of one definition.
#[derive(Debug)]
pub(super) struct Converted {
    pool: Arc<Pool>,
    /// Identifies the state of the definition in the pool.
    id: u64,
}

#[derive(Debug, Default)]
struct Forms {
    all: HashMap<(u64, Form), Entry>,
    /// The converted forms, least recently used first.
    by_use: BTreeMap<u64, (u64, Form)>,
    uses: u64,
    bytes: usize,
    definitions: u64,
}

#[derive(Debug)]
struct Entry {
    awaited: Awaited,
    /// `None` during the conversion.
    ready: Option<Ready>,
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    /// The time of the last request, as a count of requests.
    used: u64,
    bytes: usize,
    since: Instant,
}

impl Converted {
    /// Returns an empty set of forms with a new identity.
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        let mut forms = pool.0.lock();
        forms.definitions += 1;
        Self {
            id: forms.definitions,
            pool: pool.clone(),
        }
    }

    /// Returns the result of `form`, with a claim if no other request is converting it.
    pub(super) fn get_or_claim(&self, form: Form) -> (Awaited, Option<Claim>) {
        let mut forms = self.pool.0.lock();
        if let Some(awaited) = forms.find(&(self.id, form.clone())) {
            return (awaited, None);
        }
        let (sender, receiver) = watch::channel(None);
        let awaited = Awaited(receiver);
        let entry = Entry {
            awaited: awaited.clone(),
            ready: None,
        };
        forms.all.insert((self.id, form.clone()), entry);
        (awaited, Some(Claim { form, sender }))
    }

    /// Publishes the result of a claim.
    pub(super) fn finish(&self, claim: Claim, made: Made) {
        let form = (self.id, claim.form);
        let mut forms = self.pool.0.lock();
        match &made {
            Ok(object) => forms.insert(form, object.memory() + ENTRY_BYTES),
            Err(_) => forms.remove(&form),
        }
        drop(forms);
        // `send` would fail if no request waits any more.
        claim.sender.send_replace(Some(made));
    }
}

impl Drop for Converted {
    fn drop(&mut self) {
        let mut forms = self.pool.0.lock();
        let forms_of_state = forms.all.keys().filter(|(of, _)| *of == self.id);
        let forms_of_state: Vec<_> = forms_of_state.cloned().collect();
        forms_of_state.iter().for_each(|form| forms.remove(form));
    }
}

impl Forms {
    /// Returns the result of a form that is converted or being converted.
    fn find(&mut self, form: &(u64, Form)) -> Option<Awaited> {
        let now = self.next_use();
        let entry = self.all.get_mut(form)?;
        let Some(ready) = &mut entry.ready else {
            return Some(entry.awaited.clone());
        };
        if ready.since.elapsed() >= AGE_MAX {
            self.remove(form);
            return None;
        }
        let before = std::mem::replace(&mut ready.used, now);
        let awaited = entry.awaited.clone();
        let form = self.by_use.remove(&before).unwrap_or_else(|| form.clone());
        self.by_use.insert(now, form);
        Some(awaited)
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Stores the size of a converted form, and removes the least recently used forms beyond the limit.
    fn insert(&mut self, form: (u64, Form), bytes: usize) {
        let used = self.next_use();
        if let Some(entry) = self.all.get_mut(&form) {
            entry.ready = Some(Ready {
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
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, form: &(u64, Form)) {
        let removed = self.all.remove(form);
        if let Some(ready) = removed.and_then(|entry| entry.ready) {
            self.by_use.remove(&ready.used);
            self.bytes -= ready.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_api::{ColumnSet, EventType};

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

    /// Converts a form of this size.
    fn convert(converted: &Converted, name: &str, bytes: usize) {
        let (_, claim) = converted.get_or_claim(form(name, 1));
        let made = object(&form(name, 1), bytes);
        converted.finish(claim.expect("it is not stored"), Ok(made));
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_conversion() {
        let converted = converted();
        let (first, claim) = converted.get_or_claim(form("a", 1));
        let (second, none) = converted.get_or_claim(form("a", 1));
        assert!(none.is_none());
        let (_, of_another_version) = converted.get_or_claim(form("a", 2));
        assert!(of_another_version.is_some());
        let made = object(&form("a", 1), 1);
        converted.finish(claim.unwrap(), Ok(made.clone()));
        for awaited in [first, second, converted.get_or_claim(form("a", 1)).0] {
            assert!(Arc::ptr_eq(&awaited.object().await.unwrap(), &made));
        }
    }

    #[tokio::test]
    async fn failure_is_returned_and_not_stored() {
        let converted = converted();
        let (awaited, claim) = converted.get_or_claim(form("a", 1));
        let error = ConversionError("no".to_owned());
        converted.finish(claim.unwrap(), Err(error.clone()));
        assert_eq!(awaited.object().await.unwrap_err(), error);
        let (awaited, claim) = converted.get_or_claim(form("a", 1));
        drop(claim.expect("it is tried again"));
        assert!(awaited.object().await.is_err(), "the claim was dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn form_is_converted_again_after_its_maximum_age() {
        let converted = converted();
        convert(&converted, "a", 10);
        let bytes = converted.pool.0.lock().bytes;
        tokio::time::advance(AGE_MAX - Duration::from_millis(1)).await;
        let (older, none) = converted.get_or_claim(form("a", 1));
        assert!(
            none.is_none(),
            "it is stored; a use does not extend its age"
        );
        tokio::time::advance(Duration::from_millis(1)).await;
        let (_, claim) = converted.get_or_claim(form("a", 1));
        let claim = claim.expect("it is too old");
        assert_eq!(converted.pool.0.lock().bytes, 0);
        let newer = object(&form("a", 1), 10);
        converted.finish(claim, Ok(newer.clone()));
        let (now, none) = converted.get_or_claim(form("a", 1));
        assert!(none.is_none());
        assert!(Arc::ptr_eq(&now.object().await.unwrap(), &newer));
        assert!(!Arc::ptr_eq(&older.object().await.unwrap(), &newer));
        assert_eq!(converted.pool.0.lock().bytes, bytes);
    }

    #[test]
    fn least_recently_used_form_of_any_definition_is_removed() {
        let pool = Arc::default();
        let (one, other) = (Converted::new(&pool), Converted::new(&pool));
        convert(&one, "a", BYTES_MAX / 3);
        convert(&other, "a", BYTES_MAX / 3);
        assert!(one.get_or_claim(form("a", 1)).1.is_none());
        convert(&other, "b", BYTES_MAX / 3);
        assert!(one.get_or_claim(form("a", 1)).1.is_none());
        assert!(other.get_or_claim(form("b", 1)).1.is_none());
        assert!(other.get_or_claim(form("a", 1)).1.is_some());
        let forms = pool.0.lock();
        assert!(forms.bytes <= BYTES_MAX);
        assert_eq!(forms.by_use.len(), 2);
    }

    #[test]
    fn forms_are_removed_with_their_definition() {
        let pool = Arc::default();
        let (old, other) = (Converted::new(&pool), Converted::new(&pool));
        convert(&old, "a", 10);
        convert(&other, "a", 10);
        let (_in_progress, _claim) = old.get_or_claim(form("b", 1));
        drop(old);
        let left = |forms: &Forms| (forms.all.len(), forms.by_use.len());
        assert_eq!(left(&pool.0.lock()), (1, 1));
        drop(other);
        assert_eq!(left(&pool.0.lock()), (0, 0));
        assert_eq!(pool.0.lock().bytes, 0);
    }
}
