//! Tests every combination of the options of reads: version, match, limit, continue, initial events and bookmarks. The
//! expected results are tables that do not share code with the server.

use futures::future::join_all;
use serde_json::{Value, json};

use super::site::{MAPS, Site, names, version};
use super::watching::word;

/// A `resourceVersion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Unset,
    Zero,
    Old,
    Now,
    Future,
}

const VERSIONS: [At; 5] = [At::Unset, At::Zero, At::Old, At::Now, At::Future];
const MATCHES: [Option<&str>; 3] = [None, Some("Exact"), Some("NotOlderThan")];

/// The objects are a, b and c at version `old`, and b, c and d now.
struct World {
    old: u64,
    now: u64,
    /// The token after the first page of one object at `old`; b and c remain.
    token: String,
}

impl World {
    async fn make(site: &Site) -> Self {
        for name in ["a", "b", "c"] {
            site.make(name, json!({})).await;
        }
        let page = site.get(&format!("{MAPS}?limit=1")).await.ok(200);
        let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
        site.make("d", json!({})).await;
        site.remove("a").await;
        let now = site.revision().await;
        site.settle().await;
        Self {
            old: version(&page),
            now,
            token,
        }
    }

    fn number(&self, at: At) -> Option<u64> {
        match at {
            At::Unset => None,
            At::Zero => Some(0),
            At::Old => Some(self.old),
            At::Now => Some(self.now),
            At::Future => Some(self.now + 1000),
        }
    }

    fn query(&self, at: At, rule: Option<&str>) -> String {
        let at = self.number(at).map(|at| format!("resourceVersion={at}&"));
        let rule = rule.map(|rule| format!("resourceVersionMatch={rule}&"));
        at.unwrap_or_default() + &rule.unwrap_or_default()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// These objects, whether more follow, and the version if it is determined.
    List(&'static [&'static str], bool, Option<u64>),
    Failure(u16, &'static str),
}

const OLD: &[&str] = &["a", "b", "c"];
const NOW: &[&str] = &["b", "c", "d"];
const INVALID: Expected = Expected::Failure(422, "Invalid");
const TOO_LARGE: Expected = Expected::Failure(504, "Timeout");

/// Returns the expected result of a list by resourceVersion, match, limit and continue token.
fn list(world: &World, at: At, rule: Option<&str>, limited: bool, continued: bool) -> Expected {
    let whole = |all: &'static [&'static str], limited: bool, version| match limited {
        true => Expected::List(&all[..1], true, version),
        false => Expected::List(all, false, version),
    };
    let exactly = |at| match at {
        At::Old => whole(OLD, limited, Some(world.old)),
        At::Now => whole(NOW, limited, Some(world.now)),
        _ => TOO_LARGE,
    };
    match (rule, at) {
        (Some(_), _) if continued => INVALID,
        (Some(_), At::Unset) | (Some("Exact"), At::Zero) => INVALID,
        (None, At::Old | At::Now | At::Future) if continued => Expected::Failure(400, "BadRequest"),
        (None, At::Zero) if continued => whole(&OLD[1..], false, Some(world.old)),
        (None, At::Unset) if continued => whole(&OLD[1..], limited, Some(world.old)),
        (None, At::Unset) => whole(NOW, limited, None),
        (_, At::Zero) => whole(NOW, false, None),
        (Some("Exact"), at) => exactly(at),
        (None, at) if limited => exactly(at),
        (_, At::Future) => TOO_LARGE,
        (_, _) => whole(NOW, limited, None),
    }
}

pub(crate) async fn every_kind_of_list(site: &Site) {
    let world = &World::make(site).await;
    let mut cells = Vec::new();
    for at in VERSIONS {
        for rule in MATCHES {
            for (limited, continued) in [(false, false), (true, false), (false, true), (true, true)]
            {
                cells.push(async move {
                    let limit = if limited { "limit=1&" } else { "" };
                    let token = match continued {
                        true => format!("continue={}", world.token),
                        false => String::new(),
                    };
                    let query = format!("{}{limit}{token}", world.query(at, rule));
                    let answer = site.get(&format!("{MAPS}?{query}")).await;
                    match list(world, at, rule, limited, continued) {
                        Expected::Failure(code, reason) => {
                            assert_eq!(answer.code, code, "{query}: {}", answer.json());
                            answer.failure(code, reason);
                        }
                        Expected::List(expected, more, at) => {
                            assert_eq!(answer.code, 200, "{query}: {}", answer.json());
                            let list = answer.json();
                            assert_eq!(names(&list), expected, "{query}");
                            let token = &list["metadata"]["continue"];
                            assert_eq!(token.is_string(), more, "{query}");
                            assert!(at.is_none_or(|at| at == version(&list)), "{query}: {list}");
                            assert!(version(&list) >= world.old, "{query}: {list}");
                        }
                    }
                });
            }
        }
    }
    join_all(cells).await;
}

pub(crate) async fn every_kind_of_get(site: &Site) {
    let world = &World::make(site).await;
    let cells = VERSIONS.map(|at| async move {
        let query = world.query(at, None);
        for (name, there) in [("b", true), ("a", false)] {
            let answer = site.get(&format!("{MAPS}/{name}?{query}")).await;
            match (at, there) {
                (At::Future, _) => drop(answer.failure(504, "Timeout")),
                (_, true) => assert_eq!(answer.ok(200)["metadata"]["name"], name, "{query}"),
                (_, false) => drop(answer.failure(404, "NotFound")),
            }
        }
    });
    join_all(cells).await;
}

/// Returns what a watch begins with, or the error.
fn begins(
    at: At,
    rule: Option<&str>,
    initial: Option<bool>,
    bookmarks: bool,
) -> Option<&'static [&'static str]> {
    match (initial, rule) {
        (Some(_), Some("NotOlderThan")) | (None, None) => {}
        _ => return None,
    }
    let state = initial.unwrap_or(matches!(at, At::Unset | At::Zero));
    Some(match (state, at) {
        (true, _) if bookmarks => &["ADDED b", "ADDED c", "ADDED d", "BOOKMARK end"],
        (true, _) => &["ADDED b", "ADDED c", "ADDED d"],
        (false, At::Old) => &["ADDED d", "DELETED a"],
        (false, _) => &[],
    })
}

pub(crate) async fn every_kind_of_watch(site: &Site) {
    let world = &World::make(site).await;
    let mut open = Vec::new();
    for at in [At::Unset, At::Zero, At::Old, At::Now] {
        for rule in MATCHES {
            for initial in [None, Some(true), Some(false)] {
                for bookmarks in [false, true] {
                    let mut query = world.query(at, rule);
                    if let Some(initial) = initial {
                        query += &format!("sendInitialEvents={initial}&");
                    }
                    query += &format!("allowWatchBookmarks={bookmarks}");
                    let path = format!("{MAPS}?{query}");
                    match begins(at, rule, initial, bookmarks) {
                        None => {
                            let answer = site.get(&format!("{path}&watch=1")).await;
                            assert_eq!(answer.code, 422, "{query}");
                            answer.failure(422, "Invalid");
                        }
                        Some(expected) => open.push((query, expected, site.watch(&path).await)),
                    }
                }
            }
        }
    }
    let last = site.make("z", json!({})).await;
    let reading = open.into_iter().map(|(query, expected, mut watch)| {
        let last = version(&last);
        async move {
            let mut received: Vec<String> = Vec::new();
            let mut frame = Value::Null;
            while received.last().is_none_or(|word| word != "ADDED z") {
                frame = watch
                    .next()
                    .await
                    .unwrap_or_else(|| panic!("{query}: {received:?}"));
                received.push(word(&frame));
            }
            received.pop();
            assert_eq!(received, expected, "{query}");
            assert_eq!(version(&frame["object"]), last, "{query}");
        }
    });
    join_all(reading).await;
}
