//! What a script can require of a driver beyond reading and writing.

/// What a step requires of the driver beyond reading and writing. A script declares it: `needs: cut, clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// `cut`, `disconnect` and `reconnect`: the connection between the cache and storage can fail.
    Cut,
    /// `transaction`: storage can write several keys in one revision.
    Transactions,
    /// `sleep`: time is simulated, so that minutes pass immediately.
    Clock,
    /// `informer` and what refers to it: the driver has the client half.
    Informer,
    /// `compact`, `corrupt`, and a `put` that moves a pod to another node: the driver can access storage directly. No server
    /// accepts these as requests.
    Storage,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Cut,
        Self::Transactions,
        Self::Clock,
        Self::Informer,
        Self::Storage,
    ];

    /// Returns the name in a script.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Transactions => "transactions",
            Self::Clock => "clock",
            Self::Informer => "informer",
            Self::Storage => "storage",
        }
    }
}
