//! A control group with a hard memory limit, if `WATCHET_TEST_CGROUP` names a directory in which the tests may create one.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group, deleted when dropped, after its processes have ended.
pub(super) struct MemoryCgroup {
    directory: PathBuf,
}

impl MemoryCgroup {
    /// Creates a group with a limit in bytes; `None` without the variable.
    pub(super) fn create(limit: u64) -> Option<Self> {
        let parent = std::env::var_os("WATCHET_TEST_CGROUP")?;
        let name = format!("watchet-test-{}", std::process::id());
        let directory = Path::new(&parent).join(name);
        fs::create_dir(&directory).expect("a directory in which groups can be created");
        let group = Self { directory };
        // The kernel creates one of these files, if the controller is on.
        let files = ["memory.max", "memory.limit_in_bytes"].map(|file| group.directory.join(file));
        let file = files.iter().find(|file| file.exists());
        let file = file.expect("the memory controller is on");
        fs::write(file, limit.to_string()).expect("the limit can be set");
        Some(group)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            println!("{}: {error}", self.directory.display());
        }
    }
}
