//! Tests of the source with scripted servers on real sockets.

mod lists;
mod watches;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;

use super::super::rest::fake::{End, Fake, Reply};
use super::super::rest::{ApiResource, RestClient};
use super::*;
use watchet_reflector::{Change, ChangeBatch};

/// Returns a source of config maps.
fn maps(client: &RestClient, options: ListWatchOptions) -> HttpListerWatcher<ConfigMap> {
    let maps = client.resource(ApiResource::of::<ConfigMap>());
    HttpListerWatcher::new(maps, options)
}

/// Returns a source without streaming lists.
fn listing_maps(fake: &Fake) -> HttpListerWatcher<ConfigMap> {
    let options = ListWatchOptions {
        watch_list: false,
        ..ListWatchOptions::default()
    };
    maps(&fake.client(), options)
}

fn map(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#
    )
}

/// Returns a line of a watch.
fn event(event_type: &str, object: &str) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

fn bookmark(version: u64) -> String {
    let object = format!(r#"{{"kind":"ConfigMap","metadata":{{"resourceVersion":"{version}"}}}}"#);
    event("BOOKMARK", &object)
}

fn initial_events_end(version: u64) -> String {
    let object = format!(
        r#"{{"kind":"ConfigMap","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
    );
    event("BOOKMARK", &object)
}

/// Returns a response with these lines, each as a separate piece.
fn watch(lines: &[String], end: End) -> Reply {
    let pieces = lines.iter().map(|line| line.clone().into_bytes());
    Reply::pieces(200, pieces.collect(), end)
}

/// Returns a response with a list of these config maps.
fn list(version: u64, token: &str, names: &[&str]) -> Reply {
    let items: Vec<String> = names.iter().map(|name| map(name, 1)).collect();
    Reply::new(
        200,
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
            items.join(",")
        ),
    )
}

fn names(listing: &Listing<ConfigMap>) -> (Vec<&str>, u64) {
    let names = listing.objects.iter().map(|map| {
        let name = map.metadata.name.as_deref();
        name.expect("the object has a name")
    });
    (names.collect(), listing.at.get())
}

/// Formats changes: `+a`, `~a`, `-a`.
fn shorts(batch: &ChangeBatch<ConfigMap>) -> Vec<String> {
    let short = |change: &Change<ConfigMap>| {
        let (sign, map) = match change {
            Change::Added(map) => ('+', map),
            Change::Modified(map) => ('~', map),
            Change::Deleted(map) => ('-', map),
        };
        format!("{sign}{}", map.metadata.name.as_deref().unwrap_or_default())
    };
    batch.changes.iter().map(short).collect()
}

/// Reads a stream to its end: the changes, the last version, and the error, if any.
async fn drained(
    mut changes: ChangeStream<ConfigMap>,
) -> (Vec<String>, Option<u64>, Option<SourceError>) {
    let (mut formatted, mut at) = (Vec::new(), None);
    while let Some(batch) = changes.next().await {
        match batch {
            Ok(batch) => {
                formatted.extend(shorts(&batch));
                at = Some(batch.at.get());
            }
            Err(error) => {
                assert!(changes.next().await.is_none(), "nothing follows an error");
                return (formatted, at, Some(error));
            }
        }
    }
    (formatted, at, None)
}

/// Removes the timeout, which is random, from a request line.
fn timeless(line: &str) -> String {
    match line.split_once("&timeoutSeconds=") {
        Some((before, after)) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            format!("{before}{}", &after[digits..])
        }
        None => line.to_owned(),
    }
}

const WATCH: &str = "watch=true&allowWatchBookmarks=true";
