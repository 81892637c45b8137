//! The handler trait of informers, and an implementation with closures.

use std::future::Future;
use std::sync::Arc;

use crate::Deleted;

/// A notification for a handler.
#[derive(Debug)]
pub enum Notification<T> {
    /// An object was added, at least for this handler.
    Added {
        /// The object.
        object: Arc<T>,
        /// Whether it existed before the informer, or before the handler was added.
        is_in_initial_list: bool,
    },
    /// An object was updated. For a resync, or an unchanged object in a new list, the resource
    /// versions are equal.
    Updated {
        /// The object of the handler's previous notification.
        old: Arc<T>,
        /// The current object.
        new: Arc<T>,
    },
    /// An object was deleted.
    Deleted(Deleted<T>),
}

impl<T> Clone for Notification<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added {
                object,
                is_in_initial_list,
            } => Self::Added {
                object: object.clone(),
                is_in_initial_list: *is_in_initial_list,
            },
            Self::Updated { old, new } => Self::Updated {
                old: old.clone(),
                new: new.clone(),
            },
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
        }
    }
}

/// Handles the notifications of an informer, one at a time, in its own task. The default methods do
/// nothing. When a handler is called, the indexer contains the change, and possibly later ones.
///
/// A method may wait; this does not delay others. Meanwhile notifications accumulate; if there are
/// many, those of the same object are merged. A handler always receives the last state of each
/// object, and the deletion of each object that it received and that no longer exists. A method
/// should not compute for long or block the thread: most handlers add a key to a work queue.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_client::{Deleted, ResourceEventHandler};
///
/// /// How many pods there are.
/// #[derive(Default)]
/// struct Count(usize);
///
/// impl ResourceEventHandler<Pod> for Count {
///     async fn on_add(&mut self, _: Arc<Pod>, _: bool) {
///         self.0 += 1;
///     }
///     async fn on_delete(&mut self, _: Deleted<Pod>) {
///         self.0 -= 1;
///     }
/// }
/// ```
pub trait ResourceEventHandler<T: Send + Sync + 'static>: Send + 'static {
    /// An object was added. `is_in_initial_list`: it existed before the informer or the handler.
    fn on_add(
        &mut self,
        object: Arc<T>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = ()> + Send {
        let _unheard = (object, is_in_initial_list);
        std::future::ready(())
    }

    /// An object was updated since this handler's previous notification of it. After a resync or a
    /// new list the two can be equal.
    fn on_update(&mut self, old: Arc<T>, new: Arc<T>) -> impl Future<Output = ()> + Send {
        let _unheard = (old, new);
        std::future::ready(())
    }

    /// An object was deleted. If the watch missed the deletion, `deleted` has the last known state.
    fn on_delete(&mut self, deleted: Deleted<T>) -> impl Future<Output = ()> + Send {
        let _unheard = deleted;
        std::future::ready(())
    }
}

type OnAdd<T> = Box<dyn FnMut(Arc<T>, bool) + Send>;
type OnUpdate<T> = Box<dyn FnMut(Arc<T>, Arc<T>) + Send>;
type OnDelete<T> = Box<dyn FnMut(Deleted<T>) + Send>;

/// A handler made of optional closures.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet_client::ResourceEventHandlerFuncs;
///
/// let handler = ResourceEventHandlerFuncs::<Pod>::new()
///     .on_add(|pod, is_in_initial_list| {
///         println!("{:?} {is_in_initial_list}", pod.metadata.name);
///     })
///     .on_delete(|deleted| println!("{:?} was deleted", deleted.object().metadata.name));
/// ```
#[must_use = "a handler does nothing until it is added to an informer"]
pub struct ResourceEventHandlerFuncs<T> {
    add: OnAdd<T>,
    update: OnUpdate<T>,
    delete: OnDelete<T>,
}

impl<T> ResourceEventHandlerFuncs<T> {
    /// Creates a handler that does nothing.
    pub fn new() -> Self {
        Self {
            add: Box::new(|_, _| {}),
            update: Box::new(|_, _| {}),
            delete: Box::new(|_| {}),
        }
    }

    /// Sets the closure for [`ResourceEventHandler::on_add`].
    pub fn on_add(mut self, add: impl FnMut(Arc<T>, bool) + Send + 'static) -> Self {
        self.add = Box::new(add);
        self
    }

    /// Sets the closure for [`ResourceEventHandler::on_update`].
    pub fn on_update(mut self, update: impl FnMut(Arc<T>, Arc<T>) + Send + 'static) -> Self {
        self.update = Box::new(update);
        self
    }

    /// Sets the closure for [`ResourceEventHandler::on_delete`].
    pub fn on_delete(mut self, delete: impl FnMut(Deleted<T>) + Send + 'static) -> Self {
        self.delete = Box::new(delete);
        self
    }
}

impl<T> Default for ResourceEventHandlerFuncs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for ResourceEventHandlerFuncs<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceEventHandlerFuncs")
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> ResourceEventHandler<T> for ResourceEventHandlerFuncs<T> {
    async fn on_add(&mut self, object: Arc<T>, is_in_initial_list: bool) {
        (self.add)(object, is_in_initial_list);
    }

    async fn on_update(&mut self, old: Arc<T>, new: Arc<T>) {
        (self.update)(old, new);
    }

    async fn on_delete(&mut self, deleted: Deleted<T>) {
        (self.delete)(deleted);
    }
}
