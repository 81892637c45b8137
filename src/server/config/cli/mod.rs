//! The command line: clap's grammar from the flags, and clap's errors as one line. `server_config` validates the
//! values.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::server::config::flags::{self, Spec};
use crate::server::config::setting_value::{ConfigError, Source, separator_of};
use crate::server::config::settings::{CONFIG_ENV, Settings};
use crate::server::config::store_args;
use crate::{bench, cli as commands, demo, tail};

/// The parsed command line.
#[derive(Debug)]
pub(in crate::server) enum Invocation {
    /// Serve with these flags and this configuration file.
    Serve {
        /// Values given as flags.
        settings: Settings,
        /// `--config`
        config_file: Option<PathBuf>,
    },
    /// Run `bench` with these arguments.
    Bench(ArgMatches),
    /// Run `demo` with these arguments.
    Demo(ArgMatches),
    /// Run `tail` with these arguments.
    Tail(ArgMatches),
    /// Run the command of this name of `watchet_cli` with these arguments.
    Command(&'static str, ArgMatches),
    /// Run `store` with these arguments.
    Store(ArgMatches),
    /// Print a link to the console of the server in this kubeconfig, or the default one.
    Console(Option<PathBuf>),
    /// Print the completions of a shell.
    Completion(Shell),
    /// Write the manual pages into this directory.
    ManualPages(PathBuf),
    /// Create the assets of envtest, in this directory if given.
    EnvtestAssets(Option<PathBuf>),
    /// Print this text and exit.
    Print(String),
}

/// Returns the grammar.
pub(in crate::server) fn command() -> Command {
    let serve = Command::new("serve")
        .about("Serve the Kubernetes API (the default when no command is given)")
        .args_override_self(true);
    let serve = with_serve_args(serve);
    let watchet = Command::new("watchet")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A Kubernetes-compatible API server built around a watch cache")
        .after_help(
            "Every option can also be given as an environment variable (--data-dir as \
             WATCHET_DATA_DIR) or in the file of --config (as dataDir). Options win over the \
             environment, the environment over the file.\n\n\
             Run `watchet` and follow what it prints:\n  \
             export KUBECONFIG=$PWD/.watchet/kubeconfig\n  kubectl get namespaces",
        )
        .styles(Styles::plain())
        .max_term_width(100)
        .args_conflicts_with_subcommands(true)
        .args_override_self(true);
    with_serve_args(watchet)
        .subcommand(serve)
        .subcommand(demo::command())
        .subcommand(bench::command())
        .subcommand(tail::command())
        .subcommands(commands::commands())
        .subcommand(store_args::command())
        .subcommand(console())
        .subcommand(envtest_assets())
        .subcommand(completion())
        .subcommand(manual_pages())
}

fn completion() -> Command {
    Command::new("completion")
        .about("Print the completions of a shell")
        .after_help("Bash: source <(watchet completion bash)")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .help("Shell that runs the output")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

/// Writes manual pages. Hidden, because the packages contain its output.
fn manual_pages() -> Command {
    Command::new("man")
        .about("Write the manual pages, one for each command, into a directory")
        .hide(true)
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .help("Directory to write to")
                .required(true)
                .value_parser(value_parser!(PathBuf)),
        )
}

fn console() -> Command {
    Command::new("console")
        .about("Print a link that logs a browser in to the console of a running server")
        .after_help(
            "The link can be used once, within 15 minutes. The console then acts as the user of the kubeconfig, for up \
             to 12 hours.",
        )
        .arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("FILE")
                .help("Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config]")
                .value_parser(value_parser!(PathBuf)),
        )
}

fn envtest_assets() -> Command {
    Command::new("envtest-assets")
        .about("Create the kube-apiserver, etcd and kubectl that controller-runtime's envtest runs")
        .after_help(
            "Makes a directory of links to this program, which runs as kube-apiserver and as etcd when \
             it is called so, and to the kubectl of PATH. Use it in a shell as\n\n  \
             eval \"$(watchet envtest-assets)\"\n  go test ./...",
        )
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .help("Directory to create [default: watchet/envtest in $XDG_CACHE_HOME or ~/.cache]")
                .value_parser(value_parser!(PathBuf)),
        )
}

/// Adds the flags of `serve`.
fn with_serve_args(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("YAML file with any of these options; see config/watchet.yaml")
        .value_parser(value_parser!(PathBuf))
        .help_heading("Process");
    flags::augment(command).arg(config)
}

/// Parses arguments, the program's name first.
///
/// # Errors
/// An unknown flag or command, a flag without a value, text that is not UTF-8.
pub(in crate::server) fn parse(
    args: impl Iterator<Item = OsString>,
) -> Result<Invocation, ConfigError> {
    let matches = match command().try_get_matches_from(help_words(args.collect())) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Invocation::Print(error.to_string())),
        Err(error) => return Err(error_line(&error)),
    };
    let matches = match matches.subcommand() {
        Some(("bench", matches)) => return Ok(Invocation::Bench(matches.clone())),
        Some(("demo", matches)) => return Ok(Invocation::Demo(matches.clone())),
        Some(("tail", matches)) => return Ok(Invocation::Tail(matches.clone())),
        Some(("store", matches)) => return Ok(Invocation::Store(matches.clone())),
        Some((name, matches)) if commands::COMMANDS.contains(&name) => {
            let name = commands::COMMANDS.into_iter().find(|known| *known == name);
            return Ok(Invocation::Command(
                name.unwrap_or_default(),
                matches.clone(),
            ));
        }
        Some(("console", matches)) => {
            let kubeconfig = matches.get_one::<PathBuf>("kubeconfig").cloned();
            return Ok(Invocation::Console(kubeconfig));
        }
        Some(("completion", matches)) => {
            let shell = matches.get_one::<Shell>("shell").copied();
            return Ok(Invocation::Completion(shell.unwrap_or(Shell::Bash)));
        }
        Some(("man", matches)) => {
            let directory = matches.get_one::<PathBuf>("directory").cloned();
            return Ok(Invocation::ManualPages(directory.unwrap_or_default()));
        }
        Some(("envtest-assets", matches)) => {
            let directory = matches.get_one::<PathBuf>("directory").cloned();
            return Ok(Invocation::EnvtestAssets(directory));
        }
        Some((_, matches)) => matches,
        None => &matches,
    };
    Ok(Invocation::Serve {
        settings: given_flags(matches)?,
        config_file: matches.get_one::<PathBuf>("config").cloned(),
    })
}

/// Removes `--help` after the command `help`, which clap does not accept there.
fn help_words(mut args: Vec<OsString>) -> Vec<OsString> {
    let words: Vec<_> = args.iter().skip(1).take(2).collect();
    let is_help = match words.as_slice() {
        [first, ..] if *first == "help" => true,
        [first, second] => *first == "bench" && *second == "help",
        _ => false,
    };
    if is_help {
        args.retain(|arg| arg != "--help" && arg != "-h");
    }
    args
}

/// Returns the configuration file: the flag's, or the environment's.
pub(in crate::server) fn config_file(
    flag: Option<PathBuf>,
    environment: Option<OsString>,
) -> Option<(PathBuf, &'static str)> {
    let from_environment = || {
        let path = environment.filter(|path| !path.is_empty())?;
        Some((PathBuf::from(path), CONFIG_ENV))
    };
    flag.map(|path| (path, "--config"))
        .or_else(from_environment)
}

/// Returns the flags of the command line.
///
/// # Errors
/// A flag has an empty value, probably that of a shell variable that is not set. In the environment and in the file an empty
/// value means that the setting has no value.
fn given_flags(matches: &ArgMatches) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    for Spec { name, default, .. } in flags::specs() {
        let id = name.replace('-', "_");
        let values = matches.get_many::<String>(&id);
        if let Some(values) = values
            && matches.value_source(&id) == Some(ValueSource::CommandLine)
        {
            let values: Vec<&str> = values.map(String::as_str).collect();
            let text = values.join(separator_of(&name));
            if text.is_empty() {
                let remedy = match default.as_str() {
                    "" => "omit the flag, or give a value".to_owned(),
                    default => format!("omit the flag for the default {default}"),
                };
                return Err(ConfigError::new(format_args!(
                    "--{name} \"\": the value is empty: {remedy}"
                )));
            }
            settings.give(&name, text, Source::Flag);
        }
    }
    Ok(settings)
}

/// Returns the command that was not understood, if it has a help text: the start of its usage.
fn command_of(error: &clap::Error) -> String {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let words = usage
        .split_whitespace()
        .skip_while(|word| *word != "watchet");
    let words = words.take_while(|word| word.starts_with(char::is_alphabetic));
    let words: Vec<&str> = words.collect();
    match words.as_slice() {
        [] => "watchet".to_owned(),
        words => words.join(" "),
    }
}

/// Returns clap's error as one line.
fn error_line(error: &clap::Error) -> ConfigError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        // The most similar suggestion is the last.
        Some(ContextValue::Strings(texts)) => texts.last().cloned(),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg)
        .or_else(|| context(ContextKind::InvalidSubcommand))
        .unwrap_or_default();
    let meant = context(ContextKind::SuggestedArg)
        .or_else(|| context(ContextKind::SuggestedSubcommand))
        .map_or_else(
            || format!("see `{} --help`", command_of(error)),
            |name| format!("did you mean {name:?}?"),
        );
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            ConfigError::new(format_args!("unknown flag {argument:?}: {meant}"))
        }
        ErrorKind::UnknownArgument => ConfigError::new(format_args!(
            "{argument:?} is an unexpected argument: {meant}"
        )),
        ErrorKind::InvalidSubcommand => {
            ConfigError::new(format_args!("unknown command {argument:?}: {meant}"))
        }
        ErrorKind::InvalidValue if !value.is_empty() => {
            let valid = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(valid)) => valid.join(", "),
                _ => String::new(),
            };
            ConfigError::new(format_args!("{argument}: {value:?} is not one of {valid}"))
        }
        ErrorKind::InvalidValue | ErrorKind::NoEquals | ErrorKind::TooFewValues => {
            ConfigError::new(format_args!("{argument}: a value is missing; {meant}"))
        }
        ErrorKind::InvalidUtf8 => {
            ConfigError::new("an argument is not UTF-8: spell flags and values in UTF-8")
        }
        ErrorKind::MissingRequiredArgument => {
            ConfigError::new(format_args!("{argument} is missing; {meant}"))
        }
        ErrorKind::ArgumentConflict if !argument.starts_with('-') => {
            ConfigError::new(format_args!(
                "command {argument:?}: give flags after it, as in `watchet serve --storage memory`"
            ))
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            ConfigError::new(first.trim_start_matches("error: "))
        }
    }
}

#[cfg(test)]
mod tests;
