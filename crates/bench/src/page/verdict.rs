//! The result of a run in words: whether it passed, how much of the work was lost, and why it
//! failed.

use crate::metric::number;
use crate::report::{Report, Value};

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub has_passed: bool,
    /// How much of the work was lost or failed, in one line.
    pub loss: Option<String>,
    /// What the run did, in one sentence.
    pub work: String,
    /// Why it failed, one sentence each.
    pub faults: Vec<String>,
    /// Why the figures may be misleading.
    pub warnings: Vec<String>,
}

impl Verdict {
    pub(super) fn of(report: &Report) -> Self {
        let mut warnings = Vec::new();
        let has_passed = report.faults.is_empty();
        if has_passed && report.is_generator_bottleneck() {
            warnings.push(
                "The load generator was the bottleneck: rates are lower bounds of the server's, and \
                 latencies include the queue of the generator."
                    .to_owned(),
            );
        }
        Self {
            has_passed,
            loss: loss(report),
            work: work(report),
            faults: report.faults.iter().map(|fault| sentence(fault)).collect(),
            warnings,
        }
    }

    pub(super) const fn word(&self) -> &'static str {
        if self.has_passed { "Passed" } else { "Failed" }
    }
}

/// Returns a fault as a sentence with a capital letter and a full stop.
fn sentence(fault: &str) -> String {
    let mut chars = fault.chars();
    let first: String = chars
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let end = if fault.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

/// Returns how much of the work was lost or failed.
fn loss(report: &Report) -> Option<String> {
    let count = |key: &str| report.get_number(key);
    if let (Some(lost), Some(delivered)) = (count("events_lost"), count("events_delivered")) {
        let expected = number(delivered + lost);
        return Some(format!("{} of {expected} events lost", number(lost)));
    }
    if let (Some(failed), Some(requests)) = (count("requests_failed"), count("requests")) {
        let requests = number(requests);
        return Some(format!("{} of {requests} requests failed", number(failed)));
    }
    let failed = count("answers_wrong")? + count("answers_failed")?;
    let clients = number(count("clients")?);
    let failed = number(failed);
    Some(format!(
        "{failed} of {clients} clients received a wrong response or none"
    ))
}

/// Returns what the run did.
fn work(report: &Report) -> String {
    let count = |key: &str| {
        report
            .get_number(key)
            .map_or_else(|| "?".to_owned(), number)
    };
    let text = |key: &str| match report.get(key) {
        Some(Value::Text(text)) => text.clone(),
        _ => "objects".to_owned(),
    };
    let seconds = report.get_number("elapsed_ms").unwrap_or_default() / 1e3;
    let duration = match seconds {
        _ if seconds >= 0.001 => format!(" in {} s", number(seconds)),
        _ => String::new(),
    };
    match report.load() {
        "watch" => format!(
            "{} changes of {} were written and sent to {} watchers{duration}.",
            count("events_sent"),
            text("resource"),
            count("watchers")
        ),
        "churn" => format!(
            "{} clients sent {} requests{duration}, while {} clients watched.",
            count("workers"),
            count("operations"),
            count("watchers")
        ),
        "storm" => format!(
            "{} clients requested {} objects each at the same moment{duration}.",
            count("clients"),
            count("items")
        ),
        "list" => format!(
            "{} lists of {} objects were requested over {}{duration}.",
            count("requests"),
            count("items"),
            connections(report)
        ),
        "write" => format!(
            "{} writes ({}) of {} were sent over {}{duration}.",
            count("requests"),
            text("verb"),
            text("resource"),
            connections(report)
        ),
        load => format!(
            "{} {} requests for {} were sent over {}{duration}.",
            count("requests"),
            match load {
                "fill" => "create",
                "clear" => "delete",
                load => load,
            },
            text("resource"),
            connections(report)
        ),
    }
}

fn connections(report: &Report) -> String {
    match report.get_number("connections") {
        Some(1.0) => "1 connection".to_owned(),
        Some(connections) => format!("{} connections", number(connections)),
        None => "its connections".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(report: &serde_json::Value) -> Verdict {
        Verdict::of(&Report::parse(&report.to_string()).unwrap())
    }

    #[test]
    fn a_run_without_faults_has_passed() {
        let found = verdict(&json!({
            "load": "watch", "resource": "configmaps", "watchers": 100, "events_sent": 500,
            "events_delivered": 50_000, "events_lost": 0, "elapsed_ms": 10_000, "faults": [],
        }));
        assert_eq!(found.word(), "Passed");
        assert_eq!(found.loss.as_deref(), Some("0 of 50,000 events lost"));
        assert_eq!(
            found.work,
            "500 changes of configmaps were written and sent to 100 watchers in 10 s."
        );
        assert_eq!(found.warnings, [""; 0]);
    }

    #[test]
    fn a_run_with_faults_has_failed_and_says_why() {
        let found = verdict(&json!({
            "load": "watch", "events_delivered": 997, "events_lost": 3,
            "faults": ["3 events were lost", "a watch received an error."],
        }));
        assert_eq!(found.word(), "Failed");
        assert_eq!(found.loss.as_deref(), Some("3 of 1,000 events lost"));
        assert_eq!(
            found.faults,
            ["3 events were lost.", "A watch received an error."]
        );
    }

    #[test]
    fn each_kind_of_load_has_its_words() {
        for (report, loss, work) in [
            (
                json!({"load": "list", "requests": 10, "requests_failed": 0, "items": 9,
                    "connections": 1, "faults": []}),
                Some("0 of 10 requests failed"),
                "10 lists of 9 objects were requested over 1 connection.",
            ),
            (
                json!({"load": "write", "verb": "apply", "resource": "pods", "requests": 10,
                    "requests_failed": 2, "connections": 4, "faults": ["x"]}),
                Some("2 of 10 requests failed"),
                "10 writes (apply) of pods were sent over 4 connections.",
            ),
            (
                json!({"load": "storm", "clients": 5, "items": 9, "answers_wrong": 1,
                    "answers_failed": 1, "faults": ["x"]}),
                Some("2 of 5 clients received a wrong response or none"),
                "5 clients requested 9 objects each at the same moment.",
            ),
            (
                json!({"load": "future", "faults": []}),
                None,
                "? future requests for objects were sent over its connections.",
            ),
        ] {
            let found = verdict(&report);
            assert_eq!(found.loss.as_deref(), loss, "{report}");
            assert_eq!(found.work, work, "{report}");
        }
    }

    #[test]
    fn an_accepted_bottleneck_is_a_warning() {
        let found = verdict(&json!({
            "load": "get", "generator_is_bottleneck": "true", "faults": [],
        }));
        assert!(found.has_passed);
        assert!(found.warnings[0].contains("bottleneck"), "{found:?}");
    }
}
