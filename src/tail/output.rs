//! Where lines go: a thread that writes to stdout, so that a slow terminal or pipe blocks nothing else,
//! and stderr for what is said about the connection. What is in the lines is not known here.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

pub(super) use super::line::escaped;

/// How many lines wait to be written. From the handler to the one thread that writes; when it is full the
/// handler waits, and the informer tells what happens meanwhile as one change an object.
const LINES_MAX: usize = 256;

/// How often the progress of a list is drawn, a second.
const DRAWS_PER_SECOND: u8 = 4;

/// The queue of lines and its other end.
pub(super) fn queue() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(LINES_MAX)
}

/// Writes lines until nobody has any more; blocks. Whoever reads may close the pipe, as `head` does.
///
/// # Errors
/// They cannot be written.
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

/// Whether lines may have colours: on a terminal that knows them, unless the user wants none
/// (<https://no-color.org>).
pub(super) fn colours() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|term| term != "dumb")
}

/// Tells on stderr how it goes; also while a progress bar is there.
#[derive(Debug, Clone)]
pub(super) struct Teller {
    bar: ProgressBar,
    state: Arc<parking_lot::Mutex<State>>,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
    #[default]
    Connected,
    Disconnected,
}

impl Teller {
    /// With a bar, where stderr is a terminal.
    pub(super) fn new() -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let style = ProgressStyle::with_template("{spinner} {pos} objects {elapsed}");
        let bar = ProgressBar::with_draw_target(None, target)
            .with_style(style.expect("the template is a constant"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            state: Arc::default(),
        }
    }

    /// So many objects have come of the first list.
    pub(super) fn progress(&self, objects: u64) {
        self.bar.set_position(objects);
    }

    /// The first list is there.
    pub(super) fn synced(&self, objects: usize) {
        self.bar.finish_and_clear();
        let plural = if objects == 1 { "" } else { "s" };
        self.tell(&format!("synced, {objects} object{plural}"));
    }

    /// The connection is lost, or cannot be had.
    pub(super) fn disconnected(&self, why: &str) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Disconnected);
        if before == State::Connected {
            self.tell(&format!("disconnected: {why}"));
        }
    }

    /// The server answers.
    pub(super) fn connected(&self) {
        let before = std::mem::take(&mut *self.state.lock());
        if before == State::Disconnected {
            self.tell("connected again");
        }
    }

    /// A line on stderr.
    pub(super) fn tell(&self, what: &str) {
        self.bar.suspend(|| {
            // Nobody is left to tell when stderr is gone; the lines on stdout go on.
            let _told = writeln!(io::stderr(), "watchet tail: {}", escaped(what));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one line, then is closed.
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

    #[test]
    fn a_closed_pipe_is_an_end() {
        let (told, lines) = queue();
        for line in ["one", "two", "three"] {
            told.try_send(line.to_owned()).unwrap();
        }
        drop(told);
        let mut head = Head(Vec::new());
        // All of it in one write, and nothing after that.
        write(lines, &mut head).unwrap();
        assert_eq!(head.0, b"one\ntwo\nthree\n");
        let (told, lines) = queue();
        told.try_send("four".to_owned()).unwrap();
        write(lines, &mut head).unwrap();
        assert!(told.is_closed());
    }
}
