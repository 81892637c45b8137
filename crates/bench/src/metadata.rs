//! The metadata of a report: when and where the run took place, its parameters, and the command
//! that repeats it.

use std::collections::BTreeMap;
use std::fs;
use std::thread::available_parallelism;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Arguments that are not parameters of the load: they select the server and the form of the
/// report.
const NOT_PARAMETERS: [&str; 10] = [
    "kubeconfig",
    "context",
    "server",
    "token",
    "insecure",
    "pid",
    "json",
    "print",
    "html",
    "saturate",
];

/// Arguments that the command to repeat the run omits.
const NOT_REPEATED: [&str; 3] = ["json", "print", "html"];

/// Arguments whose value is secret or is valid on one machine only, and the text that replaces it.
const PLACEHOLDERS: [(&str, &str); 3] =
    [("kubeconfig", "FILE"), ("token", "TOKEN"), ("pid", "PID")];

/// When, where and with which parameters a run took place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    /// The time of the start (RFC 3339, UTC).
    pub started: String,
    /// The command that repeats the run, without secrets.
    pub command: String,
    /// The arguments of the load with their defaults.
    pub parameters: BTreeMap<String, String>,
    /// The version of the load generator.
    pub generator: String,
    pub machine: Machine,
}

/// The machine of the load generator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Machine {
    pub cores: usize,
    /// The model of the processor; empty if unknown.
    pub cpu: String,
    /// The operating system with its version, and the architecture.
    pub system: String,
}

impl Metadata {
    /// Returns the metadata of a run of `bench` with these parsed arguments that starts now.
    pub(super) fn now(bench: &Command, matches: &ArgMatches) -> Self {
        let mut words = vec!["watchet".to_owned(), bench.get_name().to_owned()];
        let (mut command, mut matches) = (bench, matches);
        while let Some((name, of_subcommand)) = matches.subcommand() {
            let Some(subcommand) = command.find_subcommand(name) else {
                break;
            };
            words.push(name.to_owned());
            (command, matches) = (subcommand, of_subcommand);
        }
        let mut parameters = BTreeMap::new();
        for argument in command.get_arguments() {
            let values = values(argument, matches);
            let name = argument.get_long().unwrap_or(argument.get_id().as_str());
            if !NOT_REPEATED.contains(&name) {
                words.extend(given(argument, matches, &values));
            }
            if !NOT_PARAMETERS.contains(&name) && !values.is_empty() {
                parameters.insert(name.to_owned(), values.join(","));
            }
        }
        Self {
            started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            command: words.join(" "),
            parameters,
            generator: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::local(),
        }
    }
}

/// Returns the values of an argument, given or default; `true` for a flag that is set.
fn values(argument: &Arg, matches: &ArgMatches) -> Vec<String> {
    let raw = matches.try_get_raw(argument.get_id().as_str());
    let Ok(Some(raw)) = raw else {
        return Vec::new();
    };
    let values = raw.map(|value| value.to_string_lossy().into_owned());
    let is_flag = !argument.get_action().takes_values();
    values
        .filter(|value| !(is_flag && value == "false"))
        .collect()
}

/// Returns the words of the command line for an argument; none if the argument was not given.
fn given(argument: &Arg, matches: &ArgMatches, values: &[String]) -> Vec<String> {
    let id = argument.get_id().as_str();
    if values.is_empty() || matches.value_source(id) != Some(ValueSource::CommandLine) {
        return Vec::new();
    }
    let placeholder = PLACEHOLDERS.iter().find(|(name, _)| *name == id);
    let text = |value: &String| match placeholder {
        Some((_, placeholder)) => (*placeholder).to_owned(),
        None => quoted(value),
    };
    let Some(long) = argument.get_long() else {
        return values.iter().map(text).collect();
    };
    if !argument.get_action().takes_values() {
        return vec![format!("--{long}")];
    }
    let pair = |value: &String| [format!("--{long}"), text(value)];
    values.iter().flat_map(pair).collect()
}

/// Quotes a word for a POSIX shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Machine {
    /// Returns the machine of this process.
    fn local() -> Self {
        let first_line = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.lines().next().unwrap_or_default().to_owned()
        };
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel =
            ["ostype", "osrelease"].map(|it| first_line(&format!("/proc/sys/kernel/{it}")));
        let [os, release] = kernel.each_ref().map(String::as_str);
        let os = if os.is_empty() {
            std::env::consts::OS
        } else {
            os
        };
        let system = [os, release, std::env::consts::ARCH];
        let system: Vec<_> = system.into_iter().filter(|it| !it.is_empty()).collect();
        Self {
            cores: available_parallelism().map_or(1, usize::from),
            cpu: cpu_model(&cpus).unwrap_or_default().to_owned(),
            system: system.join(" "),
        }
    }

    /// Returns the machine in one line.
    pub(super) fn text(&self) -> String {
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        };
        let parts = [&cores, &self.cpu, &self.system];
        let parts: Vec<&str> = parts
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(", ")
    }
}

/// Returns the model of the first processor in /proc/cpuinfo.
fn cpu_model(cpus: &str) -> Option<&str> {
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim())
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;
    use crate::args::Load;

    fn metadata(line: &str) -> Metadata {
        let bench = Load::augment_subcommands(Command::new("bench"));
        let words = line.split(' ').skip(1);
        let matches = bench.clone().try_get_matches_from(words).unwrap();
        Metadata::now(&bench, &matches)
    }

    #[test]
    fn the_command_repeats_the_run_without_secrets() {
        let line = "watchet bench watch --server https://a:1 --token secret --pid 17 --watchers 3 \
                    --rate 0 --saturate --json --html /home/me/page.html";
        let metadata = metadata(line);
        assert_eq!(
            metadata.command,
            "watchet bench watch --server https://a:1 --token TOKEN --pid PID --saturate \
             --watchers 3 --rate 0"
        );
        let parameter = |name: &str| metadata.parameters.get(name).map(String::as_str);
        assert_eq!(parameter("watchers"), Some("3"));
        assert_eq!(parameter("events"), Some("500"), "a default");
        assert_eq!(parameter("http"), Some("2"));
        for name in ["token", "server", "html", "saturate", "connections"] {
            assert_eq!(parameter(name), None, "{name}");
        }
        assert!(metadata.machine.cores > 0, "{metadata:?}");
        assert!(metadata.started.ends_with('Z'), "{metadata:?}");
    }

    #[test]
    fn positional_and_nested_arguments_are_repeated() {
        let list = metadata("watchet bench list pods --label-selector a=b --server http://a");
        assert!(list.command.contains("bench list"), "{}", list.command);
        assert!(list.command.contains(" pods"), "{}", list.command);
        assert_eq!(list.parameters["resource"], "pods");
        let floor = metadata("watchet bench floor watch --watchers 5");
        assert_eq!(floor.command, "watchet bench floor watch --watchers 5");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a=b,c"), "a=b,c");
        assert_eq!(quoted("a in (b)"), "'a in (b)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_machine_is_one_line() {
        let cpus = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_model(cpus), Some("AMD EPYC"));
        let machine = Machine {
            cores: 2,
            cpu: "AMD EPYC".to_owned(),
            system: "Linux 6.1 x86_64".to_owned(),
        };
        assert_eq!(machine.text(), "2 cores, AMD EPYC, Linux 6.1 x86_64");
    }
}
