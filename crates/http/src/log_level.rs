//! `LogLevel`: what the HTTP layer needs of the logger, which `server` installs.

/// The log level of a server, which can be changed while it runs.
pub trait LogLevel: std::fmt::Debug + Send + Sync {
    /// Returns the present level, as it was set.
    fn get(&self) -> String;

    /// Sets the level: whatever `--log-level` accepts.
    ///
    /// # Errors
    /// Returns what is wrong with the text, and what is accepted.
    fn set(&self, level: &str) -> Result<(), String>;
}
