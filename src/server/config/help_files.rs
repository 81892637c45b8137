//! Files about the command line that are derived from its grammar: completions of shells and manual pages.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, ValueHint};
use clap_complete::Shell;

use crate::server::config::cli;

/// A manual page cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write manual pages to {directory:?}: {source}: give a directory that can be written"
)]
pub(in crate::server) struct ManualPagesError {
    directory: PathBuf,
    source: io::Error,
}

/// Returns the completions of a shell.
pub(in crate::server) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    let mut command = with_file_hints(cli::command());
    clap_complete::generate(shell, &mut command, "watchet", &mut script);
    script
}

/// Lets shells complete paths where the value of a flag is one.
fn with_file_hints(command: Command) -> Command {
    let hinted = command.mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        let hint = match names.first().map(|name| name.as_str()) {
            Some("FILE" | "FILE,..." | "CERT,KEY[:NAME,...]") => ValueHint::FilePath,
            Some("DIR") => ValueHint::DirPath,
            _ => return arg,
        };
        arg.value_hint(hint)
    });
    hinted.mut_subcommands(with_file_hints)
}

/// Writes the manual pages of all commands into `directory`, which is created if necessary.
///
/// # Errors
/// The directory or a page cannot be written.
pub(in crate::server) fn write_manual_pages(directory: &Path) -> Result<(), ManualPagesError> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(cli::command(), directory));
    written.map_err(|source| ManualPagesError {
        directory: directory.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visible_command_has_a_manual_page() {
        let directory = tempfile::tempdir().unwrap();
        write_manual_pages(directory.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        let page = read("watchet-serve.1");
        assert!(page.contains(r"\-\-exit\-with\-parent"), "{page}");
        assert!(page.contains(".TH"), "{page}");
        read("watchet-store-backup.1");
        assert!(!directory.path().join("watchet-man.1").exists());
    }

    #[test]
    fn completions_have_the_flags_and_complete_paths() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(script.contains("exit-with-parent"), "{shell}");
        }
        let fish = String::from_utf8(completions(Shell::Fish)).unwrap();
        let data_dir = fish.lines().find(|line| line.contains("-l data-dir"));
        let data_dir = data_dir.expect("the flag is completed");
        assert!(
            data_dir.contains("__fish_complete_directories"),
            "{data_dir}"
        );
    }
}
