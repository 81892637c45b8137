//! Output: a thread that writes lines to stdout, so that a slow terminal or pipe blocks nothing
//! else, and status messages on stderr.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

pub(super) use super::line::escaped;

/// The capacity of the queue from the handler to the writing thread; when it is full the handler
/// waits, and the informer merges further changes of an object.
const LINES_MAX: usize = 256;

/// Redraws of the progress bar per second.
const DRAWS_PER_SECOND: u8 = 4;

/// Returns the two ends of the queue of lines.
pub(super) fn queue() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(LINES_MAX)
}

/// Writes lines until the queue is closed; blocks. Returns without error if the reader closes the
/// pipe, as `head` does.
///
/// # Errors
/// A write fails.
pub(super) fn write(mut lines: mpsc::Receiver<String>, to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    while let Some(line) = lines.blocking_recv() {
        let written = writeln!(to, "{line}").and_then(|()| match lines.is_empty() {
            true => to.flush(),
            false => Ok(()),
        });
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Returns whether to use colours: stdout is a terminal that supports them, and `NO_COLOR` is not
/// set (<https://no-color.org>).
pub fn colours() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|term| term != "dumb")
}

/// Prints status messages on stderr, and a progress bar for the first list.
#[derive(Debug, Clone)]
pub(super) struct StatusReporter {
    bar: ProgressBar,
    state: Arc<parking_lot::Mutex<State>>,
}

#[derive(Debug, Default, PartialEq, Eq, Clone)]
enum State {
    #[default]
    Connected,
    Disconnected,
    /// The server responds with this error, which was reported.
    Refused(String),
}

impl State {
    /// Changes to an error of the server; returns false if it is the present one.
    fn refused(&mut self, why: &str) -> bool {
        let refused = Self::Refused(why.to_owned());
        let is_new = *self != refused;
        *self = refused;
        is_new
    }
}

impl StatusReporter {
    /// Creates a reporter; the progress bar is shown if stderr is a terminal.
    pub(super) fn new() -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let style = ProgressStyle::with_template("{spinner} {pos} objects {elapsed}");
        let bar = ProgressBar::with_draw_target(None, target)
            .with_style(style.expect("the template is a valid constant"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            state: Arc::default(),
        }
    }

    /// Sets the number of objects received of the first list.
    pub(super) fn progress(&self, objects: u64) {
        self.bar.set_position(objects);
    }

    /// Reports that the first list is complete.
    pub(super) fn synced(&self, objects: usize) {
        self.bar.finish_and_clear();
        let plural = if objects == 1 { "" } else { "s" };
        self.print(&format!("synced, {objects} object{plural}"));
    }

    /// Reports that the connection failed, unless that was reported before.
    pub(super) fn disconnected(&self, why: &str) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Disconnected);
        if before != State::Disconnected {
            self.print(&format!("disconnected: {why}"));
        }
    }

    /// Reports that the server responds with an error and that the resource is listed again, unless the last
    /// attempt had the same error: a resource whose definition was deleted is listed until it exists again.
    pub(super) fn refused(&self, why: &str) {
        if self.state.lock().refused(why) {
            self.print(&format!("listing again until it succeeds: {why}"));
        }
    }

    /// Reports that the server responds, if it did not before.
    pub(super) fn connected(&self) {
        match std::mem::take(&mut *self.state.lock()) {
            State::Connected => {}
            State::Disconnected => self.print("connected again"),
            State::Refused(_) => self.print("listed again"),
        }
    }

    /// Prints a line on stderr.
    pub(super) fn print(&self, what: &str) {
        self.bar.suspend(|| {
            // A closed stderr is ignored; the lines on stdout continue.
            let _written = writeln!(io::stderr(), "watchet tail: {}", escaped(what));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts one line and then fails.
    struct Head(Vec<u8>);

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.0.is_empty() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// `watchet tail` of a definition that was deleted printed the same line at each attempt.
    #[test]
    fn an_error_of_the_server_is_reported_once() {
        let mut state = State::default();
        assert!(state.refused("not found"));
        assert!(!state.refused("not found"));
        assert!(state.refused("forbidden"));
        state = State::Connected;
        assert!(state.refused("forbidden"), "it succeeded in between");
    }

    #[test]
    fn a_closed_pipe_ends_the_output() {
        let (sender, lines) = queue();
        for line in ["one", "two", "three"] {
            sender.try_send(line.to_owned()).unwrap();
        }
        drop(sender);
        let mut head = Head(Vec::new());
        // The lines are written in one call, and nothing after that.
        write(lines, &mut head).unwrap();
        assert_eq!(head.0, b"one\ntwo\nthree\n");
        let (sender, lines) = queue();
        sender.try_send("four".to_owned()).unwrap();
        write(lines, &mut head).unwrap();
        assert!(sender.is_closed());
    }
}
