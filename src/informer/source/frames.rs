//! The lines of a watch's body, one event each, cut out of the pieces that it comes in. An event that is
//! in one piece is not copied. What a line means is not known here.

use bytes::{Buf as _, Bytes, BytesMut};

/// How large an event may be: what client-go's decoder takes, and ten times what etcd stores.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event is larger than [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Pieces in, lines out.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The rest of the last piece.
    piece: Bytes,
    /// The beginning of a line that ends in a later piece; at most [`EVENT_BYTES_MAX`].
    begun: BytesMut,
}

impl Frames {
    /// Adds the next piece, when [`Self::next`] has nothing more.
    pub(super) fn push(&mut self, piece: Bytes) {
        debug_assert!(
            self.piece.is_empty(),
            "lines are taken out before more comes"
        );
        self.piece = piece;
    }

    /// The next whole line that is not empty, without its end.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLarge> {
        loop {
            let end = memchr::memchr(b'\n', &self.piece);
            let length = end.unwrap_or(self.piece.len());
            if self.begun.len() + length > EVENT_BYTES_MAX {
                return Err(TooLarge);
            }
            let part = self.piece.split_to(length);
            if end.is_none() {
                self.begun.extend_from_slice(&part);
                // The piece may be a part of a larger buffer, which need not be kept for nothing.
                self.piece = Bytes::new();
                return Ok(None);
            }
            self.piece.advance(1);
            let line = match self.begun.is_empty() {
                true => part,
                false => {
                    self.begun.extend_from_slice(&part);
                    self.begun.split().freeze()
                }
            };
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Whether a line has begun and not ended.
    pub(super) fn is_within_one(&self) -> bool {
        !self.begun.trim_ascii().is_empty()
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
    fn lines_come_out_however_they_are_cut() {
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
    fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
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
