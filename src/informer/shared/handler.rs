//! What is told of the changes of a collection: the trait, and closures in place of one. Who tells it,
//! and what is kept for one that is slow, is not here.

use std::future::Future;
use std::sync::Arc;

use crate::informer::Deleted;

/// One thing that a handler is told.
#[derive(Debug)]
pub enum Notification<T> {
    /// It is new, to this handler at least.
    Added {
        /// The object.
        object: Arc<T>,
        /// Whether it was there before the informer, or the handler, was.
        is_in_initial_list: bool,
    },
    /// It changed; or it did not, and this is a resync, or what a new list says: the resource versions
    /// are equal then.
    Updated {
        /// What the handler was told last.
        old: Arc<T>,
        /// What it is now.
        new: Arc<T>,
    },
    /// It is gone.
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

/// Is told of every object of a collection and of each change of it, one call after the other, by a
/// task of its own. What it does not care about it leaves out. By the time it is told, the indexer has
/// the change, and may have later ones.
///
/// A method may wait, and nobody else waits for it. Meanwhile changes gather; if many do, those of the
/// same object are told as one. What a handler always is told: the last state of each object, and of
/// each object that it was told of and that is gone, that it is gone. A method that computes for long or
/// blocks the thread belongs elsewhere: most handlers put a key into a work queue and return.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet::informer::{Deleted, ResourceEventHandler};
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
    /// An object is new. `is_in_initial_list`: it was there when the informer, or the handler, began.
    fn on_add(
        &mut self,
        object: Arc<T>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = ()> + Send {
        let _unheard = (object, is_in_initial_list);
        std::future::ready(())
    }

    /// An object changed since this handler was told of it last. After a resync and after a new list
    /// the two can be the same.
    fn on_update(&mut self, old: Arc<T>, new: Arc<T>) -> impl Future<Output = ()> + Send {
        let _unheard = (old, new);
        std::future::ready(())
    }

    /// An object is gone. When its end was not seen (the connection was lost then), its final state is
    /// not known; what is told is the last one that is.
    fn on_delete(&mut self, deleted: Deleted<T>) -> impl Future<Output = ()> + Send {
        let _unheard = deleted;
        std::future::ready(())
    }
}

type OnAdd<T> = Box<dyn FnMut(Arc<T>, bool) + Send>;
type OnUpdate<T> = Box<dyn FnMut(Arc<T>, Arc<T>) + Send>;
type OnDelete<T> = Box<dyn FnMut(Deleted<T>) + Send>;

/// A handler made of closures, of which any may be left out.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchet::informer::ResourceEventHandlerFuncs;
///
/// let handler = ResourceEventHandlerFuncs::<Pod>::new()
///     .on_add(|pod, is_in_initial_list| {
///         println!("{:?} {is_in_initial_list}", pod.metadata.name);
///     })
///     .on_delete(|deleted| println!("{:?} is gone", deleted.object().metadata.name));
/// ```
#[must_use = "it hears nothing until an informer has it"]
pub struct ResourceEventHandlerFuncs<T> {
    add: OnAdd<T>,
    update: OnUpdate<T>,
    delete: OnDelete<T>,
}

impl<T> ResourceEventHandlerFuncs<T> {
    /// One that does nothing.
    pub fn new() -> Self {
        Self {
            add: Box::new(|_, _| {}),
            update: Box::new(|_, _| {}),
            delete: Box::new(|_| {}),
        }
    }

    /// As [`ResourceEventHandler::on_add`].
    pub fn on_add(mut self, add: impl FnMut(Arc<T>, bool) + Send + 'static) -> Self {
        self.add = Box::new(add);
        self
    }

    /// As [`ResourceEventHandler::on_update`].
    pub fn on_update(mut self, update: impl FnMut(Arc<T>, Arc<T>) + Send + 'static) -> Self {
        self.update = Box::new(update);
        self
    }

    /// As [`ResourceEventHandler::on_delete`].
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
