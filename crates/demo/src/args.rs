//! The command line of `watchet demo`.

use clap::{ArgMatches, Args, Command, FromArgMatches as _, value_parser};

use super::error::DemoError;

/// The arguments.
#[derive(Debug, Clone, Args)]
struct DemoArgs {
    /// Number of pods, from 1 to 5000
    #[arg(long, value_name = "N", default_value = "300", value_parser = value_parser!(u32).range(1..=5000))]
    pods: u32,
    /// Pod changes per second, from 1 to 1000, in addition to node heartbeats and config map changes
    #[arg(long, value_name = "PER-SECOND", default_value = "20", value_parser = value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Port to serve HTTPS on, at 127.0.0.1; 0 uses a free one
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = value_parser!(u16))]
    port: u16,
    #[arg(
        long,
        value_name = "N",
        help = "Seed of the random choices: the same seed makes the same changes in the same order [default: random]"
    )]
    seed: Option<u64>,
}

/// What to simulate, and where the server of the demonstration listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoOptions {
    /// The number of pods.
    pub pods: u32,
    /// The number of changes of pods per second.
    pub rate: u32,
    /// The port of the server; 0 for a free one.
    pub port: u16,
    /// The seed of the random choices.
    pub seed: u64,
}

impl DemoOptions {
    /// Returns the options of the parsed arguments of [`command`]. Without `--seed`, the seed is random.
    ///
    /// # Errors
    /// The arguments are those of another command.
    pub fn from_matches(matches: &ArgMatches) -> Result<Self, DemoError> {
        let args = DemoArgs::from_arg_matches(matches)?;
        // Few digits, because users copy it from the output.
        let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        Ok(Self {
            pods: args.pods,
            rate: args.rate,
            port: args.port,
            seed,
        })
    }
}

/// Returns the command line of `demo`.
pub fn command() -> Command {
    // Set after the arguments: clap would use the doc comment of the type instead.
    DemoArgs::augment_args(Command::new("demo"))
        .about("Start a server with simulated pods and three watching clients, and print commands to try")
        .after_help(
            "The server listens on 127.0.0.1 and stores everything in a temporary directory, which is removed at \
             the end. Three clients watch the pods and config maps; one of them reads slowly, so that the server \
             parks its watch: the watch continues later from the history, without a lost event. The output has a \
             link to the console and commands to try. Ctrl-C ends the demonstration.\n\n  \
             watchet demo\n  \
             watchet demo --pods 2000 --rate 100",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<DemoOptions, String> {
        let args = std::iter::once("demo").chain(args.iter().copied());
        let matches = command().try_get_matches_from(args);
        let matches = matches.map_err(|error| error.to_string())?;
        DemoOptions::from_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn the_grammar_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn options_have_defaults() {
        let options = parsed(&["--seed", "7"]).unwrap();
        let expected = DemoOptions {
            pods: 300,
            rate: 20,
            port: 0,
            seed: 7,
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn invalid_values_are_named_with_their_flag() {
        for (flag, value) in [
            ("--pods", "0"),
            ("--pods", "many"),
            ("--rate", "0"),
            ("--rate", "1001"),
            ("--port", "65536"),
            ("--seed", "x"),
        ] {
            let error = parsed(&[flag, value]).unwrap_err();
            assert!(error.contains(flag) && error.contains(value), "{error}");
        }
    }
}
