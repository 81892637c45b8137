//! `faults`: injects faults into three etcd members and two servers under load, and prints a table of what happened.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use watchet_simulation::real::{Programs, Row, Scenario, run_scenario};

/// Injects faults into real processes: three etcd members and two servers on this machine, under the load of writers, readers,
/// watchers and informers. Checks what they observed, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "faults")]
struct Arguments {
    /// The scenarios; all if there are none.
    #[arg(value_parser = parse_scenario)]
    scenarios: Vec<Scenario>,
    /// The program watchet.
    #[arg(long)]
    watchet: PathBuf,
    /// The program etcd.
    #[arg(long)]
    etcd: PathBuf,
    /// The informer in Go, `tests/go/faultinformer`.
    #[arg(long)]
    go_informer: PathBuf,
    /// The program kubectl.
    #[arg(long)]
    kubectl: PathBuf,
    /// The directory of data, logs and histories. It is created, and not deleted.
    #[arg(long, default_value = "target/faults")]
    directory: PathBuf,
    /// How long the clients run before and after each fault, in seconds.
    #[arg(long, default_value_t = 5)]
    margin: u64,
}

fn parse_scenario(name: &str) -> Result<Scenario, String> {
    let mut all = Scenario::ALL.into_iter();
    all.find(|scenario| scenario.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Scenario::ALL
            .iter()
            .map(|scenario| scenario.name())
            .collect();
        format!("no such scenario; there are {}", names.join(", "))
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scenarios = match arguments.scenarios.is_empty() {
        true => Scenario::ALL.to_vec(),
        false => arguments.scenarios.clone(),
    };
    let programs = Programs {
        watchet: arguments.watchet,
        etcd: arguments.etcd,
        go_informer: arguments.go_informer,
        kubectl: arguments.kubectl,
        margin: Duration::from_secs(arguments.margin),
        directory: arguments.directory,
    };
    if let Err(error) = std::fs::remove_dir_all(&programs.directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        eprintln!("cannot empty {}: {error}", programs.directory.display());
        return ExitCode::from(2);
    }
    println!(
        "| scenario | operations | acknowledged writes | unknown | longest pause of writes ms | watch events | 410 | relists | kubectl: commands, failed, failed again | converged after ms | violations |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut has_passed = true;
    for scenario in scenarios {
        match run_scenario(&programs, scenario).await {
            Ok(row) => {
                print(&row);
                has_passed &= row.has_passed();
            }
            Err(error) => {
                println!("| {} | {error} |", scenario.name());
                has_passed = false;
            }
        }
    }
    ExitCode::from(u8::from(!has_passed))
}

fn print(row: &Row) {
    let converged = row
        .converged_ms
        .map_or("never".to_owned(), |ms| ms.to_string());
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {}, {}, {} | {converged} | {} |",
        row.scenario,
        row.operations,
        row.acknowledged,
        row.unknown,
        row.write_pause_ms,
        row.events,
        row.expired,
        row.relists,
        row.kubectl,
        row.kubectl_failed,
        row.kubectl_failed_again,
        if row.violation.is_some() {
            "YES"
        } else {
            "none"
        },
    );
    if let Some(violation) = &row.violation {
        eprintln!("{violation}");
    }
}
