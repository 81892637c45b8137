//! The command line of `watchet store`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::server::config::flags::{self, Flags};
use crate::server::config::setting_value::{Source, separator_of};
use crate::server::config::settings::Settings;

/// What `--bump-revision` adds by default: more than a server writes between two backups. The recommendation of etcd.
const BUMP: &str = "1000000000";

/// The maximum of `--bump-revision`, far below what a revision can be.
const BUMP_MAX: u64 = 1 << 48;

/// The flags of `serve` that all commands have.
const DIRECTORY_FLAGS: &[&str] = &["data-dir"];
/// The flags of `serve` that the commands for etcd have.
const ETCD_FLAGS: &[&str] = &[
    "data-dir",
    "etcd-servers",
    "etcd-prefix",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
];

/// Returns the command line.
pub(super) fn command() -> Command {
    Command::new("store")
        .about("Check, back up, restore, compact, export or import the embedded store")
        .after_help(
            "The server must be stopped, except for `backup`. docs/storage.md describes the files of the store.",
        )
        .subcommand_required(true)
        .subcommand(with_flags(
            Command::new("check")
                .about("Verify every page, record and index of a stopped store, and its log")
                .after_help("Exit codes: 0, the store is sound; 1, it is damaged, missing or in use."),
            DIRECTORY_FLAGS,
        ))
        .subcommand(with_flags(backup(), DIRECTORY_FLAGS))
        .subcommand(with_flags(restore(), DIRECTORY_FLAGS))
        .subcommand(with_flags(
            Command::new("compact")
                .about("Delete compacted history from a stopped store and shrink its data file"),
            DIRECTORY_FLAGS,
        ))
        .subcommand(with_flags(
            Command::new("export")
                .about("Copy all objects of a stopped store to an etcd")
                .after_help(
                    "Creates the objects in the order of their last writes. etcd chooses the revisions, so clients \
                     must list again. If it fails half-way, repeat it with --force.",
                )
                .arg(force("Write to an etcd that has keys under the prefix: overwrite those that the store has too")),
            ETCD_FLAGS,
        ))
        .subcommand(with_flags(
            Command::new("import")
                .about("Create a store with all objects of an etcd")
                .after_help(
                    "Reads one revision of etcd. It keeps etcd's mod revisions, except that keys of one transaction, and \
                     keys written shortly after it, get higher ones. History is empty, so a watch from a revision before \
                     the import gets a 410. Objects that a kube-apiserver stored in protobuf are copied as they are, and a server reads them.",
                )
                .arg(force("Replace a store; the replaced one is renamed to store.replaced.<time>")),
            ETCD_FLAGS,
        ))
}

fn backup() -> Command {
    Command::new("backup")
        .about("Write all objects, as of one revision, to a file; the server may run")
        .after_help(
            "If a server uses the data directory, the backup is requested from it (GET /debug/storage/backup) with the \
             kubeconfig in the data directory; it serves requests meanwhile. Values that are encrypted at rest are \
             encrypted in the file. History, certificates and keys (pki/) are not part of it.",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .help("File to write; an existing one is replaced when the new one is complete")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("FILE")
                .help("Kubeconfig of a running server, on any machine, instead of --data-dir")
                .value_parser(value_parser!(PathBuf)),
        )
}

fn restore() -> Command {
    Command::new("restore")
        .about("Create a store from a backup")
        .after_help(
            "Without FILE it raises the revision of the store that is there, e.g. after the whole data directory was \
             restored from a copy: `watchet store restore --bump-revision`.",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required_unless_present("bump-revision")
                .help("File that `watchet store backup` wrote")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("bump-revision")
                .long("bump-revision")
                .value_name("NUMBER")
                .num_args(0..=1)
                .default_missing_value(BUMP)
                .help(format!(
                    "Add this to the revision ({BUMP} if no number is given), so that it is beyond any that a client \
                     has seen; clients list again. A start does so itself if the data directory has recorded a later \
                     revision. FILE must be before it: what follows is the number"
                ))
                .value_parser(parse_bump),
        )
        .arg(force("Replace a store; the replaced one is renamed to store.replaced.<time>"))
}

/// Parses the number of `--bump-revision`, which may also be the argument after it, as for etcdutl.
fn parse_bump(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number @ 1..=BUMP_MAX) => Ok(number),
        Ok(_) => Err(format!("it must be from 1 to {BUMP_MAX}")),
        Err(error) => Err(format!(
            "{error}; if it is the file, write it before --bump-revision"
        )),
    }
}

fn force(help: &'static str) -> Arg {
    Arg::new("force")
        .long("force")
        .action(ArgAction::SetTrue)
        .help(help)
}

/// Adds the flags of `serve` with these names.
fn with_flags(command: Command, names: &[&str]) -> Command {
    let serve = flags::augment(Command::new("serve"));
    let args = serve
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|name| names.contains(&name)))
        .cloned();
    command.args(args.map(|arg| arg.help_heading(None::<&str>)))
}

/// Returns the flags of `serve` with the values of the command line and of the environment.
pub(in crate::server) fn flags(matches: &ArgMatches) -> Flags {
    let mut settings = Settings::default();
    for name in ETCD_FLAGS {
        let id = name.replace('-', "_");
        if let Ok(Some(values)) = matches.try_get_many::<String>(&id)
            && matches.value_source(&id) == Some(clap::parser::ValueSource::CommandLine)
        {
            let values: Vec<&str> = values.map(String::as_str).collect();
            settings.give(name, values.join(separator_of(name)), Source::Flag);
        }
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        Some((name, value))
    });
    // Other settings have no effect here, and are checked by the server.
    settings.give_environment(variables);
    settings.flags()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<(Option<PathBuf>, Option<u64>), String> {
        let args = [&["watchet"], args].concat();
        let matches = restore().try_get_matches_from(args);
        let matches = matches.map_err(|error| error.to_string())?;
        let file = matches.get_one("file").cloned();
        Ok((file, matches.get_one("bump-revision").copied()))
    }

    /// The spelling of etcdutl, `--bump-revision 1000000000`, was parsed as a FILE: "cannot read the backup 1000000000".
    #[test]
    fn the_number_of_a_bump_may_be_an_argument_of_its_own() {
        let file = || Some(PathBuf::from("b"));
        for (args, expected) in [
            (&["--bump-revision"][..], (None, Some(1_000_000_000))),
            (&["--bump-revision", "5"], (None, Some(5))),
            (&["--bump-revision=5"], (None, Some(5))),
            (&["b", "--bump-revision", "5"], (file(), Some(5))),
            (&["--bump-revision", "5", "b"], (file(), Some(5))),
            (&["--bump-revision=5", "b", "--force"], (file(), Some(5))),
            (&["b", "--bump-revision"], (file(), Some(1_000_000_000))),
            (
                &["--bump-revision", "--force", "b"],
                (file(), Some(1_000_000_000)),
            ),
            (&["b"], (file(), None)),
        ] {
            assert_eq!(parse(args), Ok(expected), "{args:?}");
        }
        for (args, message) in [
            (["--bump-revision", "b"], "write it before --bump-revision"),
            (["--bump-revision", "0"], "it must be from 1 to"),
            (
                ["--bump-revision", "281474976710657"],
                "it must be from 1 to",
            ),
        ] {
            let error = parse(&args).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
