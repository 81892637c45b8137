//! The witness: a few bytes beside the data file that say how far the store had come. It is what
//! notices a data file that is whole but older than it was: emptied, replaced by an older copy, or
//! with the one bit flipped that chooses the commit before the last. It is no part of the data.
//!
//! It is written after each durable commit and not synced: process death leaves the page cache, and
//! after a power cut it may be behind the store, never ahead.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::codec::{decode_number, encode_number};
use super::data::open_private;

const NAME: &str = "witness";

/// The witness file, open.
#[derive(Debug)]
pub(super) struct Witness(File);

impl Witness {
    /// Opens the file at `path`, or makes it, and reads the revision that it saw; `None` when it
    /// has seen none, or was torn by a power cut.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<u64>)> {
        let mut file = open_private(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let seen = decode_number(NAME, &bytes);
        if seen.is_none() && !bytes.is_empty() {
            tracing::warn!(path = %path.display(), "witness file is damaged; it will be rewritten");
        }
        Ok((Self(file), seen))
    }

    /// Notes that the store has `revision` on disk.
    pub(super) fn note(&mut self, revision: u64) -> io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(&encode_number(NAME, revision))
    }
}
