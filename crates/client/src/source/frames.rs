//! Splits the body of a watch into lines, one event each. A line within one piece is not copied.

use bytes::{Buf as _, Bytes, BytesMut};

/// The maximum size of an event: client-go's limit, ten times that of etcd.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event is larger than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Splits pieces into lines.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The unread rest of the last piece.
    piece: Bytes,
    /// The beginning of an incomplete line; at most [`EVENT_BYTES_MAX`].
    incomplete: BytesMut,
}

impl Frames {
    /// Adds a piece, after [`Self::next`] has returned all lines.
    pub(super) fn push(&mut self, piece: Bytes) {
        debug_assert!(
            self.piece.is_empty(),
            "all lines are read before the next piece"
        );
        self.piece = piece;
    }

    /// Returns the next complete line that is not empty, without its end.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLarge> {
        loop {
            let end = memchr::memchr(b'\n', &self.piece);
            let length = end.unwrap_or(self.piece.len());
            if self.incomplete.len() + length > EVENT_BYTES_MAX {
                return Err(TooLarge);
            }
            let part = self.piece.split_to(length);
            if end.is_none() {
                self.incomplete.extend_from_slice(&part);
                // The piece may be part of a larger buffer, which this releases.
                self.piece = Bytes::new();
                return Ok(None);
            }
            self.piece.advance(1);
            let line = match self.incomplete.is_empty() {
                true => part,
                false => {
                    self.incomplete.extend_from_slice(&part);
                    self.incomplete.split().freeze()
                }
            };
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Returns true if a line is incomplete.
    pub(super) fn is_within_one(&self) -> bool {
        !self.incomplete.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> (Vec<String>, bool) {
        let mut frames = Frames::default();
        let mut lines = Vec::new();
        for piece in pieces {
            frames.push(Bytes::copy_from_slice(piece.as_bytes()));
            while let Some(line) = frames.next().unwrap() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        (lines, frames.is_within_one())
    }

    #[test]
    fn lines_do_not_depend_on_piece_boundaries() {
        let text = "one\ntwo\n\nthree\r\nfour";
        let whole = lines(&[text]);
        assert_eq!(
            whole,
            (vec!["one".into(), "two".into(), "three\r".into()], true)
        );
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let cut = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(lines(&cut), whole, "{cut:?}");
            }
        }
        assert_eq!(lines(&["a\n", "\n", " "]), (vec!["a".into()], false));
    }

    #[test]
    fn a_line_in_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"one\ntwo\n");
        let mut frames = Frames::default();
        frames.push(piece.clone());
        let line = frames.next().unwrap().unwrap();
        assert_eq!(line.as_ptr(), piece.as_ptr());
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let mut frames = Frames::default();
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        for _ in 0..EVENT_BYTES_MAX / piece.len() {
            frames.push(piece.clone());
            assert_eq!(frames.next(), Ok(None));
        }
        frames.push(piece);
        assert_eq!(frames.next(), Err(TooLarge));
    }
}
