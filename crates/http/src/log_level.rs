//! `LogLevel`: the interface to the logger, which `server` installs.

/// The log level of a server, which can be changed while it runs.
pub trait LogLevel: std::fmt::Debug + Send + Sync {
    /// Returns the current level, as text that [`Self::set`] accepts.
    fn get(&self) -> String;

    /// Sets the level to a value of `--log-level`.
    ///
    /// # Errors
    /// The value is invalid; the text says which values are valid.
    fn set(&self, level: &str) -> Result<(), String>;
}
