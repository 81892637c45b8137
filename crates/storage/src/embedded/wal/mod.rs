//! The write-ahead log: what makes a write durable. The writer appends a frame for each batch and
//! syncs the file once; the tables receive the changes later, in the background (see
//! `checkpointer`).
//!
//! # Definitions
//!
//! - *Frame*: the records of one batch. See `frame`.
//! - *Sequence*: the number of a frame. The tables store the sequence of the last frame that they
//!   contain.
//! - *Active file*: the one of the two files that receives frames. [`Wal::rotate`] makes the other
//!   file the active one and writes it from its beginning. Files are reused, not deleted: a write
//!   into blocks that a file already has changes no metadata, so its sync is one write to the disk.
//!
//! # Invariants
//!
//! 1. A frame is appended after all earlier frames are on disk, so only the last frame can be
//!    incomplete after a crash.
//! 2. The log is rotated only when the tables contain all frames of the other file, so no frame is
//!    overwritten that recovery needs.
//! 3. The sequences of the frames from the beginning of a file on are consecutive. Whatever follows
//!    them is an incomplete frame, frames with lower sequences from an earlier use of the file, or
//!    zeros. A valid frame there with a higher sequence proves that a frame before it is damaged.

mod file;
mod frame;

use std::io;
use std::path::{Path, PathBuf};

pub(super) use self::file::{DiskFile, LogFile};
pub(super) use self::frame::Frame;
use self::frame::{ALIGNMENT, find_later};
use super::error::OpenError;
use super::files::WAL_FILES;
use crate::private_file::sync_directory;
#[cfg(feature = "planted-bugs")]
use watchet_api::planted_bug::{PlantedBug, is_planted};

/// A file is extended by this number of zeros when it is full, so that most syncs change neither
/// its length nor its blocks.
const EXTENSION_BYTES: u64 = 256 << 10;

/// An open log.
pub(super) struct Wal {
    files: [Segment; 2],
    active: usize,
}

struct Segment {
    file: Box<dyn LogFile>,
    path: PathBuf,
    /// Where the next frame begins.
    position: u64,
    /// The length of the file.
    len: u64,
}

/// The content of a file.
struct Content {
    frames: Vec<Frame>,
    /// The offset after the last of `frames`.
    end: usize,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.files[self.active].path;
        f.debug_struct("Wal").field("active", path).finish()
    }
}

impl Wal {
    /// Opens the log in `directory`, and returns it with the frames that follow `sequence` and begin
    /// at revision `first`. Creates the files if they do not exist.
    ///
    /// # Errors
    /// Returns [`OpenError::Corrupt`] if a frame is missing or damaged and later frames exist.
    pub(super) fn open(
        directory: &Path,
        sequence: u64,
        first: u64,
    ) -> Result<(Self, Vec<Frame>), OpenError> {
        let [a, b] = WAL_FILES.map(|name| {
            let path = directory.join(name);
            let file = DiskFile::open(&path).map_err(|error| OpenError::io(&path, error))?;
            Ok((Box::new(file) as Box<dyn LogFile>, path))
        });
        let files = [a?, b?];
        // The files' names are durable once the directory is synced.
        sync_directory(directory).map_err(|error| OpenError::io(directory, error))?;
        Self::recover(files, sequence, first)
    }

    /// As [`Self::open`], for open files.
    pub(super) fn recover(
        files: [(Box<dyn LogFile>, PathBuf); 2],
        sequence: u64,
        first: u64,
    ) -> Result<(Self, Vec<Frame>), OpenError> {
        let mut segments = Vec::new();
        let mut contents = Vec::new();
        for (mut file, path) in files {
            let bytes = file.read().map_err(|error| OpenError::io(&path, error))?;
            let content = Content::parse(bytes);
            segments.push(Segment {
                file,
                path,
                position: content.end as u64,
                len: content.bytes.len() as u64,
            });
            contents.push(content);
        }
        let mut order = [0, 1];
        order.sort_by_key(|index| contents[*index].first_sequence());
        let frames = join(&segments, &mut contents, order, sequence, first)?;
        // The file with the last frame is the active one.
        let active = order[usize::from(!frames.is_empty() && segments[order[1]].position > 0)];
        let Ok(files) = <[Segment; 2]>::try_from(segments) else {
            unreachable!("there are two files")
        };
        let mut wal = Self { files, active };
        if frames.is_empty() {
            // Nothing is needed: begins at the beginning.
            wal.files[active].position = 0;
        }
        for (file, content) in wal.files.iter_mut().zip(&contents) {
            // The page cache may have frames that are not on disk, if the process was killed
            // between its write and its sync, or if the sync failed. They become visible, so they
            // must be durable. After a failed sync the kernel does not write the pages to disk
            // unless they are written again.
            let frames = &content.bytes[..content.end];
            let synced = file.file.write(0, frames).and_then(|()| file.file.sync());
            synced.map_err(|error| OpenError::io(&file.path, error))?;
        }
        Ok((wal, frames))
    }

    /// Appends a sealed frame and waits until it is on disk.
    ///
    /// # Errors
    /// After an error the frame may be on disk or not, and nothing may be appended before
    /// [`Self::reset`].
    pub(super) fn append(&mut self, frame: &Frame) -> Result<(), String> {
        let file = &mut self.files[self.active];
        file.append(frame.bytes())
            .map_err(|error| format!("cannot write {}: {error}", file.path.display()))
    }

    /// Makes the other file the active one. The caller guarantees that no frame in it is needed.
    pub(super) fn rotate(&mut self) {
        self.active = 1 - self.active;
        self.files[self.active].position = 0;
    }

    /// Removes all frames. The caller guarantees that none is needed.
    pub(super) fn reset(&mut self) -> Result<(), String> {
        for file in &mut self.files {
            file.reset()
                .map_err(|error| format!("cannot truncate {}: {error}", file.path.display()))?;
        }
        self.active = 0;
        Ok(())
    }
}

impl Segment {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.position + bytes.len() as u64;
        if end > self.len {
            let len = end.next_multiple_of(EXTENSION_BYTES);
            let zeros = usize::try_from(len - end).unwrap_or_default();
            // First, so that [`Self::reset`] truncates a file whose extension has failed half-way.
            self.len = len;
            self.file.write(end, &vec![0; zeros])?;
        }
        self.file.write(self.position, bytes)?;
        // The caller acknowledges what is only in the page cache.
        #[cfg(feature = "planted-bugs")]
        if is_planted(PlantedBug::AcknowledgedBeforeSync) {
            self.position = end;
            return Ok(());
        }
        self.file.sync()?;
        self.position = end;
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        if self.len > 0 {
            self.file.truncate()?;
            self.len = 0;
        }
        self.position = 0;
        Ok(())
    }
}

impl Content {
    fn parse(bytes: Vec<u8>) -> Self {
        let (mut frames, mut end): (Vec<Frame>, _) = (Vec::new(), 0);
        while let Some(frame) = bytes.get(end..).and_then(Frame::decode)
            && frames
                .last()
                .is_none_or(|last| last.sequence() + 1 == frame.sequence())
        {
            end = (end + frame.bytes().len()).next_multiple_of(ALIGNMENT);
            frames.push(frame);
        }
        Self { frames, end, bytes }
    }

    /// Returns the sequence of the first frame; 0 if there is none.
    fn first_sequence(&self) -> u64 {
        self.frames.first().map_or(0, Frame::sequence)
    }
}

/// Returns the frames of both files that follow `sequence`. Checks that none is missing.
fn join(
    segments: &[Segment],
    contents: &mut [Content],
    order: [usize; 2],
    sequence: u64,
    first: u64,
) -> Result<Vec<Frame>, OpenError> {
    let mut found: Vec<Frame> = Vec::new();
    let (mut next, mut revision) = (sequence + 1, first);
    let mut damaged = None;
    for index in order {
        for frame in std::mem::take(&mut contents[index].frames) {
            if frame.sequence() < next {
                continue;
            }
            if frame.sequence() > next || frame.first() != revision {
                return Err(gap(segments, contents, order, (index, &frame), next));
            }
            next += 1;
            revision += frame.records().count() as u64;
            found.push(frame);
        }
    }
    for index in order {
        let content = &contents[index];
        if let Some(later) = find_later(&content.bytes, content.end, next) {
            damaged = Some((index, later));
        }
    }
    match damaged {
        Some((index, later)) => Err(OpenError::corrupt_wal(
            &segments[index].path,
            contents[index].end,
            next,
            later,
        )),
        None => Ok(found),
    }
}

/// Returns the error for a frame that does not follow the frames before it.
fn gap(
    segments: &[Segment],
    contents: &[Content],
    order: [usize; 2],
    (index, frame): (usize, &Frame),
    next: u64,
) -> OpenError {
    // The missing frames were at the end of the older file.
    let older = order[0];
    let end = if index == older {
        0
    } else {
        contents[older].end
    };
    OpenError::corrupt_wal(&segments[older].path, end, next, frame.sequence())
}

#[cfg(test)]
mod tests;
