//! Tests of `CheckedFile` on a file in a temporary directory, without a database.

use super::*;

const PAGES: usize = 5;

/// A data file with its checksums, in a temporary directory.
struct Files(tempfile::TempDir);

impl Files {
    /// Makes a file whose pages all differ, and ends it as the database does.
    fn make() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let (file, has_checksums) = files.open();
        assert!(!has_checksums);
        file.set_len((PAGES * PAGE_BYTES) as u64).unwrap();
        for page in 0..PAGES {
            let bytes = vec![page as u8 + 1; PAGE_BYTES];
            file.write((page * PAGE_BYTES) as u64, &bytes).unwrap();
        }
        file.set_open();
        file.close().unwrap();
        files
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn checksums(&self) -> PathBuf {
        self.0.path().join("checksums")
    }

    fn open(&self) -> (CheckedFile, bool) {
        CheckedFile::open(&self.data(), &self.checksums()).unwrap()
    }

    fn flip(&self, path: &Path, at: usize) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
}

fn read(file: &CheckedFile, page: usize) -> io::Result<()> {
    file.read((page * PAGE_BYTES) as u64, &mut [0; PAGE_BYTES])
}

#[test]
fn damaged_pages_are_found_when_they_are_read() {
    for damaged in 1..PAGES {
        let files = Files::make();
        files.flip(&files.data(), damaged * PAGE_BYTES + 7);
        let (file, has_checksums) = files.open();
        assert!(has_checksums);
        for page in (0..PAGES).filter(|page| *page != damaged) {
            read(&file, page).unwrap();
        }
        assert_eq!(file.damage(), None);
        let error = read(&file, damaged).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let offset = (damaged * PAGE_BYTES).to_string();
        assert!(file.damage().unwrap().contains(&offset), "{error}");
    }
}

#[test]
fn swapped_pages_are_found() {
    let files = Files::make();
    let mut bytes = std::fs::read(files.data()).unwrap();
    let (one, two) = bytes.split_at_mut(2 * PAGE_BYTES);
    one[PAGE_BYTES..].swap_with_slice(&mut two[..PAGE_BYTES]);
    std::fs::write(files.data(), bytes).unwrap();
    read(&files.open().0, 1).unwrap_err();
}

#[test]
fn verification_finds_each_damaged_page() {
    for damaged in 1..PAGES {
        let files = Files::make();
        files.flip(&files.data(), damaged * PAGE_BYTES);
        let (file, _) = files.open();
        let mut next = Some(0);
        let found = std::iter::from_fn(|| {
            let verified = file.verify(next?, 2 * PAGE_BYTES);
            next = verified.as_ref().ok().copied().flatten();
            Some(verified)
        });
        assert!(found.last().unwrap().is_err(), "page {damaged}");
    }
    let files = Files::make();
    let (file, _) = files.open();
    let bytes = 3 * PAGE_BYTES;
    assert_eq!(file.verify(0, bytes).unwrap(), Some(bytes as u64));
    assert_eq!(file.verify(bytes as u64, bytes).unwrap(), None);
}

/// Stored checksums are used only with the data file that they are of.
#[test]
fn checksums_of_another_state_are_ignored() {
    let files = Files::make();
    assert!(files.open().1);
    for at in 0..std::fs::metadata(files.checksums()).unwrap().len() {
        let files = Files::make();
        files.flip(&files.checksums(), at as usize);
        assert!(!files.open().1, "byte {at}");
    }
    for at in [0, 9, PAGE_BYTES - 1] {
        let files = Files::make();
        files.flip(&files.data(), at);
        assert!(!files.open().1, "header byte {at}");
    }
    let files = Files::make();
    let stored = std::fs::read(files.checksums()).unwrap();
    std::fs::write(files.checksums(), &stored[..stored.len() - 1]).unwrap();
    assert!(!files.open().1, "cut");
    let files = Files::make();
    let data = std::fs::read(files.data()).unwrap();
    std::fs::write(files.data(), &data[..data.len() - PAGE_BYTES]).unwrap();
    assert!(!files.open().1, "a shorter data file");
}

/// If the database rejects the file, the pages that it read must not be trusted later.
#[test]
fn checksums_of_a_rejected_file_are_not_stored() {
    let files = Files::make();
    std::fs::remove_file(files.checksums()).unwrap();
    let (file, _) = files.open();
    read(&file, 1).unwrap();
    file.close().unwrap();
    assert!(!files.checksums().exists());
}

#[test]
fn checksums_of_a_damaged_file_are_not_stored() {
    let files = Files::make();
    files.flip(&files.data(), PAGE_BYTES);
    let stored = std::fs::read(files.checksums()).unwrap();
    let (file, _) = files.open();
    file.set_open();
    read(&file, 1).unwrap_err();
    file.write(0, &[9; 320]).unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(files.checksums()).unwrap(), stored);
    assert!(!files.open().1);
}

/// A page that was written in part has no checksum until it is read.
#[test]
fn writes_need_not_be_whole_pages() {
    let files = Files::make();
    let (file, _) = files.open();
    file.write(PAGE_BYTES as u64 + 100, &[7; 2 * PAGE_BYTES])
        .unwrap();
    file.read(50, &mut [0; 320]).unwrap();
    for page in 0..PAGES {
        read(&file, page).unwrap();
    }
    file.set_open();
    file.close().unwrap();
    let (file, has_checksums) = files.open();
    assert!(has_checksums);
    file.verify(0, PAGES * PAGE_BYTES).unwrap();
    files.flip(&files.data(), 3 * PAGE_BYTES - 1);
    read(&file, 2).unwrap_err();
}

#[test]
fn cut_and_extended_pages_are_unknown() {
    let files = Files::make();
    let (file, _) = files.open();
    file.set_len(2 * PAGE_BYTES as u64).unwrap();
    file.set_len((PAGES * PAGE_BYTES) as u64).unwrap();
    for page in 0..PAGES {
        read(&file, page).unwrap();
    }
    read(&file, PAGES).unwrap_err();
    assert_eq!(file.damage(), None, "the end of the file is no damage");
}

/// The database may shrink the file while its pages are verified in the background.
#[test]
fn verification_of_a_shrinking_file_finds_no_damage() {
    let files = Files::make();
    let (file, _) = files.open();
    std::thread::scope(|scope| {
        let verifies = scope.spawn(|| {
            for _ in 0..20_000 {
                file.verify(0, PAGES * PAGE_BYTES)?;
            }
            io::Result::Ok(())
        });
        let mut pages = (2..=PAGES as u64).rev().cycle();
        while !verifies.is_finished() {
            file.set_len(pages.next().unwrap() * PAGE_BYTES as u64)
                .unwrap();
        }
        verifies.join().unwrap().unwrap();
    });
    assert_eq!(file.damage(), None);
}

/// A data file of `PAGES` pages of zeros, of which a write writes half, and then fails.
#[derive(Debug, Default)]
struct TornWrites(RwLock<Vec<u8>>);

impl StorageBackend for TornWrites {
    fn len(&self) -> io::Result<u64> {
        Ok((PAGES * PAGE_BYTES) as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut bytes = self.0.read().clone();
        bytes.resize(PAGES * PAGE_BYTES, 0);
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok(())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut bytes, offset) = (self.0.write(), offset as usize);
        bytes.resize(PAGES * PAGE_BYTES, 0);
        bytes[offset..offset + data.len() / 2].copy_from_slice(&data[..data.len() / 2]);
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// The content of a page is unknown after a write that failed. It is no damage, which would be
/// permanent.
#[test]
fn pages_of_a_failed_write_are_not_damaged() {
    let file = CheckedFile::wrap(TornWrites::default()).unwrap();
    file.verify(0, PAGES * PAGE_BYTES).unwrap();
    file.write(PAGE_BYTES as u64, &[1; 2 * PAGE_BYTES])
        .unwrap_err();
    for page in 0..PAGES {
        read(&file, page).unwrap();
    }
    assert_eq!(file.damage(), None);
}

/// A write past the end of the file extends it by pages that have no checksum.
#[test]
fn pages_past_the_end_are_read() {
    let files = Files::make();
    let (file, _) = files.open();
    file.write((PAGES * PAGE_BYTES) as u64, &[1; PAGE_BYTES])
        .unwrap();
    read(&file, PAGES).unwrap();
}

/// A sparse file of some GB was read into memory, and opening a pipe blocked the start.
#[cfg(unix)]
#[test]
fn checksums_of_another_length_or_type_are_not_read() {
    let files = Files::make();
    let huge = std::fs::File::options().write(true).open(files.checksums());
    huge.unwrap().set_len(1 << 40).unwrap();
    assert!(!files.open().1);
    std::fs::remove_file(files.checksums()).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(files.checksums())
        .status();
    assert!(pipe.unwrap().success());
    assert!(!files.open().1);
}
