//! `Sparse`: a file in memory that uses memory only for chunks that were written. The database
//! doubles the size of its file when it is full; [`redb`'s own back
//! end](redb::backends::InMemoryBackend) is one vector, which allocates all of it, twice while it
//! grows.

use std::fmt;
use std::io;

use parking_lot::RwLock;
use redb::StorageBackend;

/// Large enough for a short list of chunks, small enough that a partly used chunk wastes little.
const CHUNK_BYTES: usize = 64 << 10;

/// A file of zeros, except for what was written.
#[derive(Default)]
pub(super) struct Sparse(RwLock<Contents>);

#[derive(Default)]
struct Contents {
    len: usize,
    /// `len` bytes, rounded up; `None` stands for zeros. All bytes after `len` are zero.
    chunks: Vec<Option<Box<[u8]>>>,
}

/// A part of an access: the chunk, the offset in it, and the offset in the caller's buffer.
struct Piece {
    chunk: usize,
    at: usize,
    of: std::ops::Range<usize>,
}

impl Contents {
    /// Returns the parts of an access; an error if it exceeds the file.
    fn pieces(&self, offset: u64, bytes: usize) -> io::Result<impl Iterator<Item = Piece> + use<>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start.checked_add(bytes).is_none_or(|end| end > self.len) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{bytes} bytes at {offset} of {}", self.len),
            ));
        }
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            let (chunk, at) = ((start + done) / CHUNK_BYTES, (start + done) % CHUNK_BYTES);
            let end = bytes.min(done + CHUNK_BYTES - at);
            let of = std::mem::replace(&mut done, end)..end;
            (!of.is_empty()).then_some(Piece { chunk, at, of })
        }))
    }
}

impl StorageBackend for Sparse {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let contents = self.0.read();
        for Piece { chunk, at, of } in contents.pieces(offset, out.len())? {
            let out = &mut out[of];
            match &contents.chunks[chunk] {
                Some(chunk) => out.copy_from_slice(&chunk[at..at + out.len()]),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut contents = self.0.write();
        contents.len = len;
        contents.chunks.resize(len.div_ceil(CHUNK_BYTES), None);
        let rest = len % CHUNK_BYTES;
        if rest > 0
            && let Some(Some(last)) = contents.chunks.last_mut()
        {
            last[rest..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut contents = self.0.write();
        for Piece { chunk, at, of } in contents.pieces(offset, data.len())? {
            let data = &data[of];
            let zeros = || vec![0; CHUNK_BYTES].into_boxed_slice();
            let chunk = contents.chunks[chunk].get_or_insert_with(zeros);
            chunk[at..at + data.len()].copy_from_slice(data);
        }
        Ok(())
    }
}

impl fmt::Debug for Sparse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.0.read();
        let allocated = contents.chunks.iter().flatten().count();
        f.debug_struct("Sparse")
            .field("len", &contents.len)
            .field("allocated", &(allocated * CHUNK_BYTES))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Op {
        Resize(usize),
        Write(usize, Vec<u8>),
        Read(usize, usize),
    }

    const END: usize = 3 * CHUNK_BYTES;

    fn op() -> impl Strategy<Value = Op> {
        // Near the boundaries of chunks.
        let place = (0..4_usize, 0..40_usize)
            .prop_map(|(chunk, near)| (chunk * CHUNK_BYTES + near).saturating_sub(20).min(END));
        let long = prop_oneof![0..50_usize, Just(CHUNK_BYTES + 30)];
        prop_oneof![
            place.clone().prop_map(Op::Resize),
            (place.clone(), vec(1..=u8::MAX, 0..50)).prop_map(|(at, data)| Op::Write(at, data)),
            (place, long).prop_map(|(at, bytes)| Op::Read(at, bytes)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Behaves like a vector.
        #[test]
        fn behaves_like_a_vector(ops in vec(op(), 1..40)) {
            let (sparse, mut model) = (Sparse::default(), Vec::new());
            for op in ops {
                match op {
                    Op::Resize(len) => {
                        sparse.set_len(len as u64).unwrap();
                        model.resize(len, 0);
                    }
                    Op::Write(at, data) => {
                        let place = model.get_mut(at..at + data.len());
                        prop_assert_eq!(sparse.write(at as u64, &data).is_ok(), place.is_some());
                        if let Some(place) = place {
                            place.copy_from_slice(&data);
                        }
                    }
                    Op::Read(at, bytes) => {
                        let mut out = vec![7; bytes];
                        let place = model.get(at..at + bytes);
                        prop_assert_eq!(sparse.read(at as u64, &mut out).is_ok(), place.is_some());
                        if let Some(place) = place {
                            prop_assert_eq!(&*out, place);
                        }
                    }
                }
                prop_assert_eq!(sparse.len().unwrap(), model.len() as u64);
            }
        }
    }

    #[test]
    fn unwritten_chunks_use_no_memory() {
        let sparse = Sparse::default();
        sparse.set_len(1 << 32).unwrap();
        sparse.write((1 << 32) - 1, b"x").unwrap();
        let allocated = sparse.0.read().chunks.iter().flatten().count();
        assert_eq!(allocated, 1, "{sparse:?}");
    }
}
