//! The committed state of a store in memory: the tables, and the layers over them.

use std::sync::Arc;

use super::error::Fault;
use super::layer::{FrozenLayer, Layer, Position};
use super::snapshot::{Base, Snapshot};

/// The committed state. A [`Snapshot`] is a copy of it.
pub(super) struct State {
    /// `None` while the database is closed.
    pub(super) base: Option<Arc<Base>>,
    /// The sequence of the last frame in `base`, also while that is closed.
    pub(super) base_sequence: u64,
    pub(super) frozen: Option<Arc<FrozenLayer>>,
    pub(super) active: Layer,
    pub(super) position: Position,
}

impl State {
    pub(super) fn new(base: Base, frozen: Option<FrozenLayer>) -> Self {
        let position = base.numbers.position();
        Self {
            base_sequence: position.sequence,
            base: Some(Arc::new(base)),
            position: frozen.as_ref().map_or(position, |frozen| frozen.end),
            frozen: frozen.map(Arc::new),
            active: Layer::default(),
        }
    }

    /// Replaces the tables by those of a later commit, and drops the frozen layer if they contain
    /// it.
    pub(super) fn rebase(&mut self, base: Base) -> Result<(), Fault> {
        let sequence = base.numbers.sequence;
        let frozen = self.frozen.as_ref();
        if frozen.is_some_and(|frozen| frozen.end.sequence == sequence) {
            self.frozen = None;
        } else if sequence != self.base_sequence {
            return Err(Fault::Damaged(format!(
                "it is at frame {sequence}, but was at {}",
                self.base_sequence
            )));
        }
        self.base_sequence = sequence;
        self.base = Some(Arc::new(base));
        Ok(())
    }
}

impl State {
    /// Returns a snapshot; `None` while the database is closed.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        Some(Snapshot {
            base: self.base.clone()?,
            frozen: self.frozen.clone(),
            active: self.active.clone(),
            position: self.position,
        })
    }

    /// Makes the active layer the frozen one, and returns it. There must be no frozen layer.
    pub(super) fn freeze(&mut self) -> Arc<FrozenLayer> {
        assert!(self.frozen.is_none(), "the tables have the frozen layer");
        let frozen = Arc::new(FrozenLayer {
            layer: std::mem::take(&mut self.active),
            end: self.position,
        });
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Returns true if a layer has changes, which the tables lack.
    pub(super) fn has_changes(&self) -> bool {
        self.base_sequence != self.position.sequence
    }
}
