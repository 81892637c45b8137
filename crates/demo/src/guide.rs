//! `Guide`: the text that the program prints when the demonstration runs: the link to the console, and commands to try.

use std::fmt;

use super::args::DemoOptions;
use super::pod::{NODES, STABLE_POD};
use super::watchers::{DASHBOARD, INFORMER, SLOW_READER};

/// The text for the user. The caller quotes `program` and `kubeconfig` for a shell.
#[derive(Debug, Clone, Copy)]
pub struct Guide<'a> {
    /// The options of the simulation.
    pub options: &'a DemoOptions,
    /// The command that runs this program.
    pub program: &'a str,
    /// The path of the kubeconfig.
    pub kubeconfig: &'a str,
    /// The link to the console, if it is served.
    pub console: Option<&'a str>,
    /// The age of the oldest past state that can be read, as text.
    pub retention: &'a str,
}

impl fmt::Display for Guide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            options,
            program,
            kubeconfig,
            console,
            retention,
        } = self;
        let DemoOptions {
            pods, rate, seed, ..
        } = options;
        let (plural, changes) = (plural(*pods), if *rate == 1 { "change" } else { "changes" });
        writeln!(
            f,
            "\n{pods} pod{plural} on {NODES} simulated nodes, {rate} {changes} per second, seed {seed}. No container runs.\n"
        )?;
        if let Some(link) = console {
            writeln!(f, "  Console     {link}")?;
            writeln!(f, "              (valid once, for 15 minutes)")?;
        }
        writeln!(f, "  Kubeconfig  {kubeconfig}\n")?;
        writeln!(f, "In another terminal:\n")?;
        writeln!(f, "  export KUBECONFIG={kubeconfig}\n")?;
        writeln!(
            f,
            "Fan-out: the server sends each change to all watches that select it.\n"
        )?;
        writeln!(f, "  kubectl get pods -w")?;
        writeln!(f, "  {program} top\n")?;
        writeln!(
            f,
            "Parking: {INFORMER} and {DASHBOARD} read each event immediately. {SLOW_READER} reads a few\n\
             bytes per second for 40 seconds, then at full speed for 10. After about 15 seconds its buffer on\n\
             the server is full, and the server parks its watch: it continues later from the history. It\n\
             loses no event, and other watches are not delayed.\n"
        )?;
        writeln!(f, "  kubectl get watchers -o wide")?;
        writeln!(
            f,
            "  kubectl get watchers --field-selector status.phase=Parked\n"
        )?;
        writeln!(
            f,
            "Past states: the server retains those of the last {retention}.\n"
        )?;
        writeln!(f, "  {program} at 10s get pods")?;
        writeln!(f, "  {program} diff 10s now pods")?;
        writeln!(f, "  {program} history pods/{STABLE_POD}\n")?;
        writeln!(f, "Ctrl-C ends the demonstration and removes its files.\n")
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
