//! The control group (cgroup v2 or v1) that limits the memory of this process, and its use.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group with a memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Cgroup {
    directory: PathBuf,
    version: Version,
    /// The limit in bytes.
    pub(super) limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

impl Cgroup {
    /// Returns the control group of this process, or the ancestor of it, with the lowest limit; `None` without a limit. `root` is
    /// `/`, except in tests.
    pub(in crate::server) fn find(root: &Path) -> Option<Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let physical = physical_memory(root);
        groups
            .lines()
            .filter_map(|line| hierarchy(root, line))
            .flat_map(|(version, mount, path)| limits(version, &mount, &path))
            // The kernel reports no limit as more than any machine has.
            .filter(|group| physical.is_none_or(|physical| group.limit < physical))
            .min_by_key(|group| group.limit)
    }

    /// Returns the memory of the group that the kernel cannot reclaim, in bytes.
    pub(super) fn used(&self) -> io::Result<usize> {
        let stat = fs::read_to_string(self.directory.join("memory.stat"))?;
        let value = |name: &str| {
            let mut lines = stat.lines();
            let text = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            text.and_then(|text| text.trim().parse::<usize>().ok())
        };
        let of = |names: &[&str]| -> usize { names.iter().filter_map(|name| value(name)).sum() };
        match self.version {
            Version::V2 => {
                let reclaimable = of(&["slab_reclaimable"]);
                Ok(of(&["anon", "shmem", "kernel", "sock"]).saturating_sub(reclaimable))
            }
            Version::V1 => {
                let file = |name| read_number(&self.directory.join(name)).unwrap_or_default();
                let sockets = file("memory.kmem.tcp.usage_in_bytes");
                Ok(of(&["total_rss", "total_shmem"]) + sockets)
            }
        }
    }
}

/// Returns the version, the mount point and the path in it of a line of `/proc/self/cgroup` whose hierarchy limits memory.
fn hierarchy(root: &Path, line: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let path = PathBuf::from(path.trim_start_matches('/'));
    let mount = root.join("sys/fs/cgroup");
    match controllers {
        "" => Some((Version::V2, mount, path)),
        _ if controllers.split(',').any(|name| name == "memory") => {
            Some((Version::V1, mount.join("memory"), path))
        }
        _ => None,
    }
}

/// Returns the limits of the group and its ancestors. In a container the path may be the one outside it: then only the mount point
/// exists, which is the group of the container.
fn limits(version: Version, mount: &Path, path: &Path) -> Vec<Cgroup> {
    let read = |directory: PathBuf| {
        let limit = read_number(&directory.join(version.limit_file()))?;
        Some(Cgroup {
            directory,
            version,
            limit,
        })
    };
    let ancestors = path.ancestors();
    ancestors
        .filter_map(|part| read(mount.join(part)))
        .collect()
}

/// Returns the number in a file; `None` for `max`.
fn read_number(path: &Path) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn physical_memory(root: &Path) -> Option<usize> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file system with these files and 8 GiB of memory.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let memory = ("proc/meminfo", "MemTotal:        8388608 kB\n");
        for (path, text) in files.iter().chain([&memory]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn check(files: &[(&str, &str)], expected: Option<(usize, usize)>) {
        let root = system(files);
        let group = Cgroup::find(root.path());
        let found = group.map(|group| (group.limit, group.used().expect("a memory.stat")));
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn the_lowest_limit_of_the_group_and_its_ancestors_counts() {
        let stat = "anon 1000\nfile 70000\nkernel 300\nshmem 20\nsock 4000\nslab_reclaimable 100\n";
        let group = ("proc/self/cgroup", "0::/kube/pod/app\n");
        check(
            &[
                group,
                ("sys/fs/cgroup/kube/pod/app/memory.max", "max\n"),
                ("sys/fs/cgroup/kube/pod/memory.max", "536870912\n"),
                ("sys/fs/cgroup/kube/pod/memory.stat", stat),
                ("sys/fs/cgroup/kube/memory.max", "1073741824\n"),
            ],
            Some((512 << 20, 5220)),
        );
        // In a container with a namespace of its own.
        check(
            &[
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "268435456\n"),
                ("sys/fs/cgroup/memory.stat", stat),
            ],
            Some((256 << 20, 5220)),
        );
    }

    #[test]
    fn version_1_is_supported() {
        let stat = "cache 99999\nrss 1\ntotal_rss 2000\ntotal_shmem 30\n";
        check(
            &[
                ("proc/self/cgroup", "5:cpu:/\n4:memory:/docker/abc\n0::/\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n"),
                ("sys/fs/cgroup/memory/memory.stat", stat),
                (
                    "sys/fs/cgroup/memory/memory.kmem.tcp.usage_in_bytes",
                    "500\n",
                ),
            ],
            Some((100 << 20, 2530)),
        );
    }

    #[test]
    fn no_limit_is_none() {
        check(&[], None);
        let group = ("proc/self/cgroup", "4:memory:/\n0::/\n");
        let unlimited = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        check(&[group, unlimited], None);
        check(&[group, ("sys/fs/cgroup/memory.max", "max\n")], None);
    }
}
