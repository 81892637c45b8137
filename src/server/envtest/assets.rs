//! `watchet envtest-assets`: creates the directory for KUBEBUILDER_ASSETS.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::server::config::setting_value::ConfigError;
use crate::server::envtest::program::{ETCD, KUBE_APISERVER};
use crate::server::process::announce::shell_word;

const KUBECTL: &str = "kubectl";

/// Creates `directory`, or the default one, with links named `kube-apiserver` and `etcd` to this
/// program and `kubectl` to the first one of PATH, and prints the command that exports it. Existing
/// links are replaced.
///
/// # Errors
/// The directory cannot be created, or has a file or directory with one of the names.
pub(in crate::server) fn make(directory: Option<PathBuf>) -> Result<(), ConfigError> {
    let directory = directory.map_or_else(default_directory, Ok)?;
    let directory =
        std::path::absolute(&directory).map_err(|error| ConfigError::file(&directory, error))?;
    let program = std::env::current_exe()
        .map_err(|error| ConfigError::new(format_args!("cannot find this program: {error}")))?;
    fs::create_dir_all(&directory).map_err(|error| ConfigError::file(&directory, error))?;
    for name in [KUBE_APISERVER, ETCD] {
        link(&program, &directory.join(name))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    match find_kubectl(std::env::split_paths(&path), &directory) {
        Some(kubectl) => link(&kubectl, &directory.join(KUBECTL))?,
        None => {
            // Standard output is for the shell's eval; a closed stderr is ignored.
            let _ = writeln!(
                io::stderr(),
                "watchet: there is no kubectl in PATH, so none in {}; only tests that run kubectl need it",
                directory.display()
            );
        }
    }
    let directory = directory.display().to_string();
    writeln!(
        io::stdout(),
        "export KUBEBUILDER_ASSETS={}",
        shell_word(&directory)
    )
    .map_err(|error| ConfigError::new(format_args!("cannot print: {error}")))
}

/// Returns `$XDG_CACHE_HOME/watchet/envtest`, by default `~/.cache/watchet/envtest`.
fn default_directory() -> Result<PathBuf, ConfigError> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        ConfigError::new("neither XDG_CACHE_HOME nor HOME is set: give a directory, as in `watchet envtest-assets DIR`")
    })?;
    Ok(cache.join("watchet").join("envtest"))
}

/// Creates the symbolic link `at` to `target`; an existing link is replaced atomically.
fn link(target: &Path, at: &Path) -> Result<(), ConfigError> {
    let failed = |error: io::Error| ConfigError::file(at, error);
    match fs::symlink_metadata(at) {
        Ok(found) if !found.file_type().is_symlink() => {
            let kind = match found.is_dir() {
                true => "a directory",
                false => "a file",
            };
            return Err(ConfigError::file(
                at,
                format_args!(
                    "is {kind} that this command did not create: remove it, or give another directory"
                ),
            ));
        }
        Ok(_) if fs::read_link(at).map_err(failed)? == target => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let temporary = at.with_extension(std::process::id().to_string());
    symlink(target, &temporary).map_err(failed)?;
    fs::rename(&temporary, at).map_err(failed)
}

/// Returns the first executable kubectl of `path` that is not the link in `directory`.
fn find_kubectl(path: impl Iterator<Item = PathBuf>, directory: &Path) -> Option<PathBuf> {
    let own = fs::canonicalize(directory).ok();
    let mut others =
        path.filter(|entry| entry.is_absolute() && fs::canonicalize(entry).ok() != own);
    others.find_map(|entry| {
        let candidate = entry.join(KUBECTL);
        let metadata = fs::metadata(&candidate).ok()?;
        let can_run = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        can_run.then_some(candidate)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn links_are_replaced_and_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("etcd");
        for target in ["/bin/a", "/bin/b", "/bin/b"] {
            link(Path::new(target), &at).unwrap();
            assert_eq!(fs::read_link(&at).unwrap(), Path::new(target));
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        let file = dir.path().join("kube-apiserver");
        executable(&file);
        let error = link(Path::new("/bin/a"), &file).unwrap_err().to_string();
        assert!(
            error.contains("kube-apiserver: is a file that this command did not create"),
            "{error}"
        );
    }

    #[test]
    fn kubectl_is_the_first_that_can_be_run_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let entries =
            ["assets", "empty", "text", "first", "second"].map(|name| dir.path().join(name));
        for entry in &entries {
            fs::create_dir(entry).unwrap();
        }
        let [assets, _, text, first, second] = &entries;
        for entry in [assets, first, second] {
            executable(&entry.join("kubectl"));
        }
        fs::write(text.join("kubectl"), "").unwrap();
        let found = find_kubectl(entries.clone().into_iter(), assets);
        assert_eq!(found, Some(first.join("kubectl")));
        assert_eq!(find_kubectl([assets.clone()].into_iter(), assets), None);
    }
}
