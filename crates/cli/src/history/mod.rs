//! `watchet history RESOURCE/NAME`: prints each retained version of an object: when it was written, by which field
//! manager, and what changed; with the Events about the object in between.

mod entry;

use std::time::Duration;

use clap::Args;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::args::{NamespaceArgs, ServerArgs, named};
use super::at::{Selection, items, list};
use super::error::CliError;
use super::output::{self, Paint};
use super::redact::redact;
use super::revisions;
use crate::output_format::OutputFormat;
use entry::{Entry, Version};
use watchet_client::{ApiResource, RestClient};
use watchet_tail::{author, between};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// Object, as in kubectl: pods/web-0, deployments.apps web
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Name of the object, unless it follows the resource and a slash
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Namespace [default: the context's]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Do not print the Events about the object
    #[arg(long)]
    no_events: bool,
    /// Output format: json (one version or Event per line)
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

/// The longest time in which the server sends nothing, as it searches its history for the object.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The object whose history is read.
struct Target {
    client: RestClient,
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
}

impl Target {
    fn selection(&self) -> Selection<'_> {
        Selection {
            namespace: self.namespace.as_deref(),
            name: Some(&self.name),
            ..Selection::default()
        }
    }

    /// Returns the object at exactly `revision`, or the latest.
    async fn at(&self, revision: Option<&str>) -> Result<Option<Value>, CliError> {
        let client = &self.client;
        let accept = "application/json";
        let list = list(client, &self.resource, self.selection(), revision, accept).await?;
        Ok(items(list, &self.resource).pop())
    }

    /// Returns the watch events of the object that storage has, in order.
    async fn events(&self) -> Result<Vec<Value>, CliError> {
        let path = self.resource.url_path(self.namespace.as_deref());
        let fields = format!("metadata.name={}", self.name);
        let query = [
            ("watch", "true"),
            ("historyFromStorage", "true"),
            ("timeoutSeconds", "600"),
            ("fieldSelector", fields.as_str()),
        ];
        let mut parts = std::pin::pin!(self.client.get_stream(&path, &query).await?);
        let (mut events, mut line) = (Vec::new(), Vec::new());
        loop {
            // A server that does not know historyFromStorage sends no bookmark and does not end the watch.
            let part = timeout(SILENCE_MAX, parts.try_next()).await;
            let part =
                part.map_err(|_| self.no_history(&format!("nothing for {SILENCE_MAX:?}")))??;
            let Some(part) = part else {
                return Err(self.no_history("no bookmark at its end"));
            };
            for byte in part {
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let event: Value = serde_json::from_slice(&line)
                    .map_err(|error| CliError::Response(error.to_string()))?;
                line.clear();
                match event["type"].as_str() {
                    Some("BOOKMARK") => return Ok(events),
                    Some("ERROR") => {
                        let message = event["object"]["message"].as_str();
                        let message = message.unwrap_or("an ERROR event without a message");
                        return Err(CliError::Missing(message.to_owned()));
                    }
                    _ => events.push(event),
                }
            }
        }
    }

    fn no_history(&self, sent: &str) -> CliError {
        let server = self.client.server();
        CliError::Response(format!(
            "{server} sent {sent} after its history: repeat the command; only watchet has the parameter historyFromStorage"
        ))
    }
}

/// Runs the command.
pub(crate) async fn run(args: HistoryArgs) -> Result<(), CliError> {
    let target = named(&args.resource, args.name.as_deref())?;
    let name = target.name.ok_or(CliError::Value {
        argument: "<NAME>",
        problem: "give the name of an object, as in `watchet history pods/web-0`".to_owned(),
    })?;
    let client = args.server.connect()?;
    let resource = client.discover().await?.resolve(target.resource)?;
    let namespaces = NamespaceArgs {
        namespace: args.namespace.clone(),
        all_namespaces: false,
    };
    let namespace = namespaces.of(&client, &resource, Some(name))?;
    let target = Target {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        client: client.clone(),
        resource,
    };
    let versions = versions(&target).await?;
    if versions.is_empty() {
        return Err(CliError::Missing(format!(
            "{} {name:?} does not exist, and did not exist in the retained history",
            target.resource
        )));
    }
    let mut entries: Vec<Entry> = versions.into_iter().map(Entry::Version).collect();
    if !args.no_events {
        match about(&target).await {
            Ok(events) => entry::insert_events(&mut entries, events),
            Err(error) => output::note("history", &format!("without Events: {error}")),
        }
    }
    let paint = Paint::detect();
    let text = entries.iter().map(|entry| match args.output {
        Some(OutputFormat::Json) => format!("{}\n", entry.json()),
        None => entry.text(paint),
    });
    output::print(&text.collect::<String>())
}

/// Returns the versions of the object, the oldest first.
async fn versions(target: &Target) -> Result<Vec<Version>, CliError> {
    let events = target.events().await?;
    let first = events.first();
    let mut before = match first.map(|event| event["type"].as_str().unwrap_or_default()) {
        Some("ADDED") => None,
        Some(_) => {
            let revision = first.and_then(|event| revision_of(&event["object"]));
            let earlier = revision.and_then(|revision| revision.parse::<u64>().ok());
            let earlier = earlier.map(|revision| revision.saturating_sub(1).to_string());
            // The state may be compacted meanwhile.
            target.at(earlier.as_deref()).await.unwrap_or(None)
        }
        // It has not changed.
        None => target.at(None).await?,
    };
    let mut versions = Vec::new();
    if let Some(object) = &before {
        versions.push(Version::oldest(object));
    }
    for event in events {
        let mut object = event["object"].clone();
        object["apiVersion"] = json!(target.resource.api_version());
        object["kind"] = json!(target.resource.kind);
        let event_type = event["type"].as_str().unwrap_or_default().to_owned();
        let mut changes = match &before {
            Some(before) if event_type == "MODIFIED" => between(before, &object),
            _ => Vec::new(),
        };
        let author = match (event_type.as_str(), &before) {
            ("DELETED", _) | ("MODIFIED", None) => None,
            ("ADDED", _) => author(None, &object, &[]),
            (_, before) => author(before.as_ref(), &object, &changes),
        };
        redact(&target.resource.kind, &mut changes);
        versions.push(Version {
            revision: revision_of(&object).unwrap_or_default(),
            time: None,
            has_unknown_changes: event_type == "MODIFIED" && before.is_none(),
            event_type: event_type.clone(),
            author,
            changes,
        });
        before = Some(object).filter(|_| event_type != "DELETED");
    }
    let revisions: Vec<String> = versions.iter().map(|v| v.revision.clone()).collect();
    let times = revisions::times(&target.client, &revisions).await;
    for version in &mut versions {
        version.time = times.get(&version.revision).copied().or(version.time);
    }
    Ok(versions)
}

fn revision_of(object: &Value) -> Option<String> {
    let revision = object["metadata"]["resourceVersion"].as_str();
    revision.map(str::to_owned)
}

/// Returns the Events about the object, with their times.
async fn about(target: &Target) -> Result<Vec<(Timestamp, Value)>, CliError> {
    let events = ApiResource::namespaced("", "v1", "events", "Event");
    let kind = &target.resource.kind;
    let fields = format!(
        "involvedObject.name={},involvedObject.kind={kind}",
        target.name
    );
    let selection = Selection {
        // Those about cluster-scoped objects are in the namespace default.
        namespace: Some(target.namespace.as_deref().unwrap_or("default")),
        fields: Some(&fields),
        ..Selection::default()
    };
    let found = list(&target.client, &events, selection, None, "application/json").await?;
    let found = items(found, &events).into_iter();
    Ok(found
        .filter_map(|event| Some((time_of_event(&event)?, event)))
        .collect())
}

fn time_of_event(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    times
        .into_iter()
        .find_map(|time| time.as_str()?.parse().ok())
}
