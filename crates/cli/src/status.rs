//! `watchet status`: one screen about a server, from its readiness checks, version and metrics.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::args::ServerArgs;
use super::error::CliError;
use super::revisions::{self, Document, local};
use super::{output, table};
use crate::output_format::OutputFormat;
use watchet_client::{RestClient, RestError};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Output format: json
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    output: Option<OutputFormat>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Whether the server is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Readiness {
    Ready,
    /// The checks that fail.
    Failing(Vec<String>),
    /// The server does not respond, or rejects the request.
    Unreachable(String),
}

/// Runs the command. The exit code is 0 if the server is ready, else 1.
pub(crate) async fn run(args: StatusArgs) -> Result<ExitCode, CliError> {
    let client = args.server.connect()?;
    let readiness = readiness(&client).await;
    let mut status = json!({"server": client.server(), "ready": readiness == Readiness::Ready});
    let mut lines = vec![line("server", client.server())];
    match &readiness {
        Readiness::Ready => lines.push(line("ready", "yes")),
        Readiness::Failing(checks) => {
            status["failingChecks"] = json!(checks);
            let checks = checks.join(", ");
            lines.push(line(
                "ready",
                &format!("no: the checks {checks} fail; the server's log has the reasons"),
            ));
        }
        Readiness::Unreachable(why) => {
            status["error"] = json!(why);
            lines.push(line(
                "ready",
                &format!(
                    "no: {why}; start a server with `watchet`, or name another with --kubeconfig or --context"
                ),
            ));
        }
    }
    if !matches!(readiness, Readiness::Unreachable(_)) {
        describe(&client, &mut status, &mut lines).await;
    }
    match args.output {
        Some(OutputFormat::Json) => output::print(&format!("{status}\n"))?,
        None => output::print(&table::aligned(&lines))?,
    }
    Ok(ExitCode::from(u8::from(readiness != Readiness::Ready)))
}

fn line(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), watchet_tail::escaped(value)]
}

async fn readiness(client: &RestClient) -> Readiness {
    let ready = client
        .get_document("/readyz", &[("verbose", "")], "text/plain")
        .await;
    match ready {
        Ok(_) => Readiness::Ready,
        Err(error) => match failing_checks(&error) {
            checks if checks.is_empty() => Readiness::Unreachable(error.to_string()),
            checks => Readiness::Failing(checks),
        },
    }
}

/// Returns the checks that an error of `/readyz` names: it quotes the lines of the response.
fn failing_checks(error: &RestError) -> Vec<String> {
    let Some(status) = error.status() else {
        return Vec::new();
    };
    let lines = status.message.split("\\n");
    let failed = lines.filter_map(|line| {
        let (_, line) = line.split_once("[-]")?;
        Some(line.split(' ').next()?.to_owned())
    });
    failed.collect()
}

/// Adds what the server reports about itself; what the user may not read is left out.
async fn describe(client: &RestClient, status: &mut Value, lines: &mut Vec<Vec<String>>) {
    let version: Result<Value, _> = client.get_json("/version", &[]).await;
    if let Ok(version) = version {
        let text = version["gitVersion"].as_str().unwrap_or_default();
        status["version"] = json!(text);
        lines.push(line("version", text));
    }
    let document = revisions::document(client).await.ok();
    let metrics = client.get_document("/metrics", &[], "text/plain").await;
    let metrics = metrics.map(|text| String::from_utf8_lossy(&text).into_owned());
    let value = |name: &str| sum(metrics.as_ref().ok()?, name);
    let size = value("apiserver_storage_size_bytes");
    if let Some(document) = &document {
        status["storage"] = json!(document.storage);
        let size = size.map_or_else(String::new, |size| format!(", {}", bytes_text(size)));
        lines.push(line("storage", &format!("{}{size}", document.storage)));
        lines.push(line("history", &history_text(document)));
        status["oldestResourceVersion"] = json!(document.oldest.revision);
        status["resourceVersion"] = json!(document.newest.revision);
    }
    let numbers = [
        ("objects", "objects", value("apiserver_resource_objects")),
        ("watchers", "watchers", value("watchet_watchers")),
    ];
    for (name, member, number) in numbers {
        if let Some(number) = number {
            status[member] = json!(number);
            lines.push(line(name, &number.to_string()));
        }
    }
    status["storageBytes"] = json!(size);
    let memory = value("process_resident_memory_bytes");
    status["memoryBytes"] = json!(memory);
    if let Some(memory) = memory {
        lines.push(line("memory", &bytes_text(memory)));
    }
    if let Err(error) = &metrics {
        lines.push(line("metrics", &format!("not available: {error}")));
    }
}

fn history_text(document: &Document) -> String {
    let since = match document.oldest.time {
        Some(time) => format!("since {} (", local(time)),
        None => "(".to_owned(),
    };
    format!(
        "{since}resourceVersion {} to {})",
        document.oldest.revision, document.newest.revision
    )
}

/// Returns the sum of the samples of a metric; `None` if there is none. Unused resources have no samples, so that zero
/// is only returned if a sample is zero.
fn sum(metrics: &str, name: &str) -> Option<u64> {
    let samples = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_sample = rest.starts_with('{') || rest.starts_with(' ');
        let value: f64 = rest.rsplit(' ').next()?.parse().ok()?;
        (is_sample && value >= 0.0).then_some(value)
    });
    // Numbers of objects and bytes are far below 2^53.
    samples.reduce(|a, b| a + b).map(|sum| sum as u64)
}

/// Returns a number of bytes as text in binary units.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let kib = bytes as f64 / 1024.0;
    match kib {
        kib if kib < 1024.0 => format!("{kib:.1} KiB"),
        kib if kib < 1_048_576.0 => format!("{:.1} MiB", kib / 1024.0),
        kib => format!("{:.1} GiB", kib / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_added() {
        let metrics = "# HELP a_b Help.\n# TYPE a_b gauge\na_b{x=\"1\"} 3\na_b{x=\"2\"} 4\na_bc 100\nzero 0\n";
        assert_eq!(sum(metrics, "a_b"), Some(7));
        assert_eq!(sum(metrics, "zero"), Some(0));
        assert_eq!(sum(metrics, "none"), None);
    }

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!(bytes_text(1536), "1.5 KiB");
        assert_eq!(bytes_text(1 << 20), "1.0 MiB");
        assert_eq!(bytes_text(3 << 29), "1.5 GiB");
    }
}
