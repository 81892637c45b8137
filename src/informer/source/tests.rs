//! The source against scripted servers on real sockets.

mod lists;
mod watches;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;

use super::super::rest::fake::{End, Fake, Reply};
use super::super::rest::{ApiResource, RestClient};
use super::*;
use crate::reflector::{Change, ChangeBatch};

/// Config maps of `client`.
fn maps(client: &RestClient, options: ListWatchOptions) -> HttpListerWatcher<ConfigMap> {
    let maps = client.resource(ApiResource::of::<ConfigMap>());
    HttpListerWatcher::new(maps, options)
}

/// The same without streamed lists.
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

/// A line of a watch.
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

/// An answer that is a watch with these lines, each in a piece of its own.
fn watch(lines: &[String], end: End) -> Reply {
    let pieces = lines.iter().map(|line| line.clone().into_bytes());
    Reply::pieces(200, pieces.collect(), end)
}

/// An answer that is a list of these config maps.
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
        name.expect("it has a name")
    });
    (names.collect(), listing.at.get())
}

/// A change in short: `+a`, `~a`, `-a`.
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

/// Everything that a stream tells until it ends: the changes, where they led, and how it ended.
async fn drained(
    mut changes: ChangeStream<ConfigMap>,
) -> (Vec<String>, Option<u64>, Option<SourceError>) {
    let (mut told, mut at) = (Vec::new(), None);
    while let Some(batch) = changes.next().await {
        match batch {
            Ok(batch) => {
                told.extend(shorts(&batch));
                at = Some(batch.at.get());
            }
            Err(error) => {
                assert!(changes.next().await.is_none(), "nothing follows an error");
                return (told, at, Some(error));
            }
        }
    }
    (told, at, None)
}

/// A request without the time that it asks for, which is random.
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
