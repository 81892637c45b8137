//! Levels and stages of audit events.

use std::fmt;

/// The amount of data in an event, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No event.
    None,
    /// The user, the verb and the resource, without objects.
    Metadata,
    /// Also the object in the request.
    Request,
    /// Also the object in the response.
    RequestResponse,
}

impl Level {
    /// Every level.
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::Metadata,
        Self::Request,
        Self::RequestResponse,
    ];

    /// Returns the name in policies and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The point of a request at which an event is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The request has arrived.
    RequestReceived,
    /// The head of the response to a long-running request has been sent.
    ResponseStarted,
    /// The response has been sent.
    ResponseComplete,
    /// A bug in the server ended the request.
    Panic,
}

impl Stage {
    /// Every stage, in the order of a request.
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    /// Returns the name in policies and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Adds a stage.
    pub fn insert(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    /// Returns true if the set has `stage`.
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    /// Returns the stages of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages = Stage::ALL.into_iter().filter(|stage| self.contains(*stage));
        f.debug_set().entries(stages).finish()
    }
}
