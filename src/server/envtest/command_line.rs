//! Command lines with pflag's syntax, for the programs of envtest: `--name=value`, `--name value`,
//! booleans without a value, underscores for dashes. Errors have pflag's wording.

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::api::parse_go_duration;
use crate::server::config::setting_value::{parse_bool, separator_of};

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true` or `false`; `--name` alone is true.
    Bool,
    /// An integer.
    Int,
    /// A number.
    Float,
    /// A Go duration such as `1m30s`.
    Duration,
    /// Any text.
    Text,
    /// Comma-separated texts; a repeated flag adds to them.
    List,
}

impl Kind {
    /// The placeholder of the value in the help; none for booleans.
    fn placeholder(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int => "int",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::Text => "string",
            Self::List => "strings",
        }
    }

    /// Returns what is wrong with `value`, as Go's parsers report it.
    fn problem(self, value: &str) -> Option<String> {
        let syntax =
            |function: &str| format!("strconv.{function}: parsing {value:?}: invalid syntax");
        match self {
            Self::Bool => parse_bool(value).is_none().then(|| syntax("ParseBool")),
            Self::Int => value.parse::<i64>().is_err().then(|| syntax("ParseInt")),
            Self::Float => value.parse::<f64>().is_err().then(|| syntax("ParseFloat")),
            Self::Duration => {
                let text = value.strip_prefix('-').unwrap_or(value);
                let invalid = parse_go_duration(text).is_none();
                invalid.then(|| format!("time: invalid duration {value:?}"))
            }
            Self::Text | Self::List => None,
        }
    }
}

/// A flag of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flag {
    /// The name, without dashes.
    pub name: &'static str,
    /// The one-letter form, if any.
    pub short: Option<char>,
    /// The type of the value.
    pub kind: Kind,
    /// The help; empty for a flag that is accepted without effect.
    pub help: &'static str,
}

impl Flag {
    /// A flag without a one-letter form.
    pub(super) const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        let short = None;
        Self {
            name,
            short,
            kind,
            help,
        }
    }

    /// Returns `served` followed by the flags without an effect, which are sorted by name.
    pub(super) fn with_ignored(
        served: &[Self],
        ignored: &[(&'static [&'static str], Kind)],
    ) -> Vec<Self> {
        let ignored = ignored
            .iter()
            .flat_map(|(names, kind)| names.iter().map(|name| Self::new(name, *kind, "")));
        let mut flags: Vec<Self> = served.iter().copied().chain(ignored).collect();
        flags[served.len()..].sort_by_key(|flag| flag.name);
        flags
    }

    /// Returns true if the flag is accepted without effect.
    pub(super) fn is_ignored(&self) -> bool {
        self.help.is_empty()
    }
}

/// An invalid command line; the message is pflag's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct CommandLineError(String);

/// A parsed command line.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandLine {
    /// The flags and their values, in the order given.
    values: Vec<(&'static str, Kind, String)>,
}

impl CommandLine {
    /// Parses `arguments`, which do not contain the name of the program.
    ///
    /// # Errors
    /// An unknown flag, a flag without its value or with a malformed one, an argument that is not a
    /// flag, text that is not UTF-8.
    pub(super) fn parse(
        flags: &[Flag],
        arguments: impl Iterator<Item = OsString>,
    ) -> Result<Self, CommandLineError> {
        let mut parsed = Self::default();
        let mut arguments = arguments.map(|argument| {
            argument
                .into_string()
                .map_err(|argument| CommandLineError(format!("argument {argument:?} is not UTF-8")))
        });
        while let Some(argument) = arguments.next().transpose()? {
            let (flag, attached) = split(flags, &argument)?;
            let value = match (attached, flag.kind) {
                (Some(value), _) => value,
                (None, Kind::Bool) => "true".to_owned(),
                (None, _) => arguments.next().transpose()?.ok_or_else(|| {
                    CommandLineError(format!("flag needs an argument: {argument}"))
                })?,
            };
            if let Some(problem) = flag.kind.problem(&value) {
                let short = flag.short.map(|c| format!("-{c}, ")).unwrap_or_default();
                return Err(CommandLineError(format!(
                    "invalid argument {value:?} for \"{short}--{}\" flag: {problem}",
                    flag.name
                )));
            }
            parsed.values.push((flag.name, flag.kind, value));
        }
        Ok(parsed)
    }

    /// Returns the value of the flag `name`: the last one given, or all of a list joined by its separator.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        let mut given = self.values.iter().filter(|(other, ..)| *other == name);
        let (_, kind, last) = given.clone().next_back()?;
        Some(match kind {
            Kind::List => {
                let all: Vec<&str> = given.by_ref().map(|(.., value)| value.as_str()).collect();
                all.join(separator_of(name))
            }
            _ => last.clone(),
        })
    }

    /// Returns true if the boolean flag `name` was given and is true.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.value(name).and_then(|text| parse_bool(&text)) == Some(true)
    }

    /// Returns the names of the flags that were given, each once.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for (name, ..) in &self.values {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }
}

/// Splits an argument into its flag and the value that is part of it, if any.
fn split(flags: &[Flag], argument: &str) -> Result<(Flag, Option<String>), CommandLineError> {
    if let Some(long) = argument.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        let normal = name.replace('_', "-");
        let found = flags.iter().find(|flag| flag.name == normal);
        let unknown = || CommandLineError(format!("unknown flag: --{name}"));
        return Ok((*found.ok_or_else(unknown)?, value));
    }
    let mut letters = argument.strip_prefix('-').unwrap_or_default().chars();
    let Some(letter) = letters.next() else {
        return Err(CommandLineError(format!(
            "unexpected argument {argument:?}"
        )));
    };
    let found = flags.iter().find(|flag| flag.short == Some(letter));
    let unknown = || CommandLineError(format!("unknown shorthand flag: {letter:?} in {argument}"));
    let flag = *found.ok_or_else(unknown)?;
    let rest = letters.as_str();
    let value = (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest).to_owned());
    Ok((flag, value))
}

/// Renders the help of a program: the flags with an effect and their help, then the names of the others.
pub(super) fn help(about: &str, flags: &[Flag]) -> String {
    let mut text = format!("{about}\n\nFlags:\n");
    let line = |flag: &Flag| {
        let short = flag.short.map_or("    ".to_owned(), |c| format!("-{c}, "));
        format!("  {short}--{} {}", flag.name, flag.kind.placeholder())
    };
    let (ignored, served): (Vec<&Flag>, Vec<&Flag>) =
        flags.iter().partition(|flag| flag.is_ignored());
    for flag in served {
        let head = line(flag);
        let indent = " ".repeat(10);
        let help = wrapped(flag.help, 88).join(&format!("\n{indent}"));
        text += &format!("{}\n{indent}{help}\n", head.trim_end());
    }
    if !ignored.is_empty() {
        text += "\nFlags that are accepted without effect:\n";
    }
    for flag in ignored {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line(flag).trim_end());
    }
    text
}

/// Wraps `text` into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag::new("allow-privileged", Kind::Bool, ""),
        Flag::new("secure-port", Kind::Int, "The port."),
        Flag::new("etcd-servers", Kind::List, "The servers."),
        Flag::new("request-timeout", Kind::Duration, ""),
        Flag {
            short: Some('v'),
            ..Flag::new("v", Kind::Int, "Verbosity.")
        },
    ];

    fn parse(arguments: &[&str]) -> Result<CommandLine, String> {
        let arguments = arguments.iter().map(OsString::from);
        CommandLine::parse(FLAGS, arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_attached_or_follow() {
        for (arguments, name, expected) in [
            (&["--secure-port=1"][..], "secure-port", Some("1")),
            (&["--secure-port", "1"], "secure-port", Some("1")),
            (&["--secure_port=1"], "secure-port", Some("1")),
            (
                &["--secure-port=1", "--secure-port=2"],
                "secure-port",
                Some("2"),
            ),
            (
                &["--etcd-servers=a,b", "--etcd-servers=c"],
                "etcd-servers",
                Some("a,b,c"),
            ),
            (&["--allow-privileged"], "allow-privileged", Some("true")),
            (
                &["--allow-privileged=false"],
                "allow-privileged",
                Some("false"),
            ),
            (&["--allow-privileged", "--v=4"], "v", Some("4")),
            (&["-v", "4"], "v", Some("4")),
            (&["-v=4"], "v", Some("4")),
            (&["-v4"], "v", Some("4")),
            (&["--request-timeout=-1s"], "request-timeout", Some("-1s")),
            (&[], "v", None),
        ] {
            let parsed = parse(arguments).unwrap();
            assert_eq!(parsed.value(name).as_deref(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn errors_have_pflags_wording() {
        for (arguments, expected) in [
            (&["--etcd-server=x"][..], "unknown flag: --etcd-server"),
            (&["-x"], "unknown shorthand flag: 'x' in -x"),
            (&["--secure-port"], "flag needs an argument: --secure-port"),
            (&["serve"], "unexpected argument \"serve\""),
            (
                &["--secure-port=many"],
                "invalid argument \"many\" for \"--secure-port\" flag: \
                 strconv.ParseInt: parsing \"many\": invalid syntax",
            ),
            (
                &["--allow-privileged=maybe"],
                "invalid argument \"maybe\" for \"--allow-privileged\" flag: \
                 strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                &["-vx"],
                "invalid argument \"x\" for \"-v, --v\" flag: \
                 strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                &["--request-timeout=soon"],
                "invalid argument \"soon\" for \"--request-timeout\" flag: \
                 time: invalid duration \"soon\"",
            ),
        ] {
            assert_eq!(parse(arguments).unwrap_err(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn each_flag_begins_a_line_of_the_help() {
        let text = help("About.", FLAGS);
        for flag in FLAGS {
            let begins = |line: &str| line.trim_start().contains(&format!("--{}", flag.name));
            assert!(text.lines().any(begins), "{}", flag.name);
        }
        assert!(
            text.contains("\n      --secure-port int\n          The port.\n"),
            "{text}"
        );
        assert!(
            text.contains("without effect:\n      --allow-privileged\n"),
            "{text}"
        );
    }
}
