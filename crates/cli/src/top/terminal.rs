//! The terminal: raw mode and the alternate screen while the value exists, keys from a thread, and drawing.

use std::io::{self, Stdout, Write as _};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use tokio::sync::mpsc;

use super::screen::{Line, Size, Style};

/// The capacity of the queue of keys, from the thread that reads them to the view. When it is full, the thread waits, and
/// the terminal buffers keys.
const KEYS_MAX: usize = 64;

/// How often the thread that reads keys checks whether the view has ended.
const POLL: Duration = Duration::from_millis(100);

/// What the thread reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Input {
    Key(KeyEvent),
    Resized,
}

/// The terminal in raw mode, which is restored when this is dropped.
pub(super) struct Terminal {
    out: Stdout,
}

impl Terminal {
    /// Enters raw mode and the alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let mut terminal = Self { out: io::stdout() };
        execute!(terminal.out, EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    /// Returns the size of the screen.
    pub(super) fn size(&self) -> Size {
        let (width, height) = size().unwrap_or((80, 24));
        Size {
            width: width.into(),
            height: height.into(),
        }
    }

    /// Draws the whole screen in one write.
    pub(super) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut frame = Vec::new();
        for (row, line) in lines.iter().enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            queue!(frame, MoveTo(0, row))?;
            match line.style {
                Style::Plain => {}
                Style::Bold => queue!(frame, SetAttribute(Attribute::Bold))?,
                Style::Inverse => queue!(frame, SetAttribute(Attribute::Reverse))?,
            }
            queue!(
                frame,
                Print(&line.text),
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        queue!(frame, Clear(ClearType::FromCursorDown))?;
        self.out.write_all(&frame)?;
        self.out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        drop(execute!(self.out, Show, LeaveAlternateScreen));
        drop(disable_raw_mode());
    }
}

/// Returns the two ends of the queue of keys.
pub(super) fn inputs() -> (mpsc::Sender<Input>, mpsc::Receiver<Input>) {
    mpsc::channel(KEYS_MAX)
}

/// Reads keys until the receiver is dropped; blocks.
///
/// # Errors
/// The terminal cannot be read.
pub(super) fn read(inputs: &mpsc::Sender<Input>) -> io::Result<()> {
    while !inputs.is_closed() {
        if !event::poll(POLL)? {
            continue;
        }
        let input = match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
            Event::Resize(..) => Input::Resized,
            _ => continue,
        };
        if inputs.blocking_send(input).is_err() {
            break;
        }
    }
    Ok(())
}
