//! The command lines, and their execution: from parsed arguments to the exit code.
//!
//! Exit codes: 0, success; 1, failure; 2, invalid arguments. `diff` returns 1 if the states differ and 2 for any failure,
//! as diff does.

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

use super::at::{self, AtArgs};
use super::diff::{self, DiffArgs};
use super::error::CliError;
use super::history::{self, HistoryArgs};
use super::kubeconfig::{self, KubeconfigArgs};
use super::output;
use super::status::{self, StatusArgs};
use super::top::{self, TopArgs};
use super::version::{self, Build, VersionArgs};

/// The names of the commands.
pub const COMMANDS: [&str; 7] = [
    "at",
    "diff",
    "history",
    "top",
    "status",
    "kubeconfig",
    "version",
];

/// Returns the command lines, in the order of [`COMMANDS`].
pub fn commands() -> [Command; 7] {
    let [at, diff, history, top, status, kubeconfig, version] = COMMANDS.map(Command::new);
    // The texts are set after the arguments: clap would use the doc comments of the types instead.
    [
        AtArgs::augment_args(at)
            .about("Print objects as they were at a past time or resourceVersion")
            .after_help(
                "The server retains history for its --history-retention, or else for its \
                 --etcd-compaction-interval.\n\n  \
                 watchet at 5m get pods -A\n  \
                 watchet at 14:30 get deployments.apps web -o yaml\n  \
                 watchet at 1234 get cm/settings -n shop",
            ),
        DiffArgs::augment_args(diff)
            .about("Print what differs between two past states, or a past state and now")
            .after_help(
                "  + added   ~ changed   - removed\n\n\
                 Managed fields, resourceVersions and generations are not compared, and values of secrets are \
                 hidden. Exit codes: 0, no difference; 1, differences; 2, failure.\n\n  \
                 watchet diff 10m now\n  \
                 watchet diff 1234 5m deployments.apps/web -n shop",
            ),
        HistoryArgs::augment_args(history)
            .about("Print each version of an object: when, by which field manager, and what changed")
            .after_help(
                "  + created   ~ changed   - deleted   = the oldest retained version\n\n\
                 The field manager is unknown if the managed fields do not determine it, as for every deletion. \
                 Times are exact to about a second.\n\n  \
                 watchet history pods/web-0\n  \
                 watchet history deployments.apps web -n shop -o json | jq .changes",
            ),
        TopArgs::augment_args(top)
            .about("Show the open watches and the watch caches of a server, live")
            .after_help(
                "? shows all keys. d ends the selected watch, after a confirmation.\n\n  \
                 watchet top --sort lag\n  \
                 watchet top --caches --once",
            ),
        StatusArgs::augment_args(status)
            .about("Print whether a server is ready, its storage, history, watchers and memory")
            .after_help("Exit codes: 0, ready; 1, not ready or unreachable; 2, invalid arguments."),
        KubeconfigArgs::augment_args(kubeconfig)
            .about("Print the kubeconfig of a server on this machine, or merge it into yours")
            .after_help(
                "A merge retains all other entries and members, replaces the file atomically, and stores a copy of \
                 the previous file beside it. Like `kubectl config`, it does not retain comments.\n\n  \
                 watchet kubeconfig >kubeconfig\n  \
                 watchet kubeconfig --merge",
            ),
        VersionArgs::augment_args(version)
            .about("Print the version, the commit, the Kubernetes API and the features of this program"),
    ]
}

/// Runs the command `name`, one of [`COMMANDS`], with the parsed arguments.
pub fn main(name: &str, matches: &ArgMatches, build: &Build) -> ExitCode {
    match run(name, matches, build) {
        Ok(code) => code,
        Err(error) => {
            output::note(name, &error.to_string());
            ExitCode::from(match name == "diff" || error.is_usage() {
                true => 2,
                false => 1,
            })
        }
    }
}

fn run(name: &str, matches: &ArgMatches, build: &Build) -> Result<ExitCode, CliError> {
    let done = |()| ExitCode::SUCCESS;
    match name {
        "at" => block_on(at::run(AtArgs::from_arg_matches(matches)?)).map(done),
        "diff" => block_on(diff::run(DiffArgs::from_arg_matches(matches)?)),
        "history" => block_on(history::run(HistoryArgs::from_arg_matches(matches)?)).map(done),
        "top" => block_on(top::run(TopArgs::from_arg_matches(matches)?)).map(done),
        "status" => block_on(status::run(StatusArgs::from_arg_matches(matches)?)),
        "kubeconfig" => kubeconfig::run(&KubeconfigArgs::from_arg_matches(matches)?).map(done),
        _ => version::run(&VersionArgs::from_arg_matches(matches)?, build).map(done),
    }
}

fn block_on<T>(command: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("watchet")
        .build()
        .map_err(CliError::Start)?;
    let result = runtime.block_on(command);
    runtime.shutdown_timeout(Duration::ZERO);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammars_are_valid() {
        for command in commands() {
            assert!(COMMANDS.contains(&command.get_name()));
            command.debug_assert();
        }
    }
}
