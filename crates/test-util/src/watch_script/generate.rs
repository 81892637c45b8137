//! Generates random scripts with the expectations of the model, and shrinks a script that fails.

use fastrand::Rng;

use super::failure::Failure;
use super::model::with_expectations;
use super::object::{Content, ObjectName, Resource};
use super::script::{Action, Link, Read, Script, StartVersion, Write};
use super::version_ref::VersionRef;

const LABELS: [&str; 5] = ["", "", "app=web", "app!=web", "app=db,tier!=x"];
const FIELDS: [&str; 5] = [
    "",
    "",
    "spec.nodeName=n1",
    "spec.nodeName!=n1",
    "metadata.name=p2",
];
const NAMESPACES: [Option<&str>; 3] = [None, Some("default"), Some("other")];

/// Returns `count` random actions: writes and transactions of a few pods, watches from every version, lists, lost
/// storage watches and slow clients. [`shrink`] and the model add the expectations.
pub fn random_actions(random: &mut Rng, count: usize) -> Vec<Action> {
    let mut actions = Vec::new();
    let (mut version, mut clients) = (0, 0);
    for _ in 0..count {
        let client = format!("w{}", random.u32(..=clients));
        actions.push(match random.u32(..100) {
            0..55 => {
                version += 1;
                Action::Write {
                    writes: random_writes(random),
                    version,
                    count: 1,
                }
            }
            55..70 => {
                clients += 1;
                Action::Watch(format!("w{clients}"), random_watch(random, version))
            }
            70..80 => Action::List(format!("l{}", actions.len()), random_read(random)),
            80..84 => Action::Pause(client),
            84..88 => Action::Resume(client),
            88..91 => Action::Cut(Link::Storage),
            _ => Action::Expect(client, Vec::new()),
        });
    }
    actions
}

fn random_writes(random: &mut Rng) -> Vec<Write> {
    let count = if random.u32(..5) == 0 {
        2 + random.usize(..3)
    } else {
        1
    };
    let mut writes: Vec<Write> = Vec::new();
    while writes.len() < count {
        let resource = if random.u32(..10) == 0 {
            Resource::ConfigMaps
        } else {
            Resource::Pods
        };
        let namespace = ["default", "other"][random.usize(..2)].to_owned();
        let object = ObjectName {
            resource,
            namespace,
            name: format!("p{}", random.u32(..4)),
        };
        if writes.iter().any(|write| *write.object() == object) {
            continue;
        }
        writes.push(match random.u32(..4) {
            0 => Write::Delete(object),
            _ => Write::Put(object, random_content(random)),
        });
    }
    writes
}

fn random_content(random: &mut Rng) -> Content {
    let app = ["web", "db"][random.usize(..2)];
    let mut labels = std::collections::BTreeMap::from([("app".to_owned(), app.to_owned())]);
    if random.bool() {
        labels.insert("tier".to_owned(), "x".to_owned());
    }
    Content {
        labels,
        node_name: ["", "n1", "n2"][random.usize(..3)].to_owned(),
    }
}

fn random_read(random: &mut Rng) -> Read {
    Read {
        namespace: NAMESPACES[random.usize(..NAMESPACES.len())].map(str::to_owned),
        labels: LABELS[random.usize(..LABELS.len())].to_owned(),
        fields: FIELDS[random.usize(..FIELDS.len())].to_owned(),
        ..Read::default()
    }
}

fn random_watch(random: &mut Rng, version: u32) -> Read {
    let from = match random.u32(..3) {
        0 => StartVersion::Unset,
        _ => StartVersion::At(VersionRef::named(random.u32(..=version))),
    };
    // Without a version, the watch begins with the state, which ends with a bookmark.
    let bookmarks = from == StartVersion::Unset && random.bool();
    Read {
        from,
        bookmarks,
        ..random_read(random)
    }
}

fn script(actions: &[Action]) -> Script {
    let text = Script::print(
        "Random writes and watches, with the events that the model predicts.",
        &with_expectations(actions),
    );
    Script::parse("random.script", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs the script of the actions. If it fails, removes actions as long as the shorter script also fails, and returns
/// the failure of the shortest one.
///
/// # Errors
/// Returns the failure of the smallest script found.
pub async fn shrink(
    mut actions: Vec<Action>,
    mut run: impl AsyncFnMut(&Script) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failure = match run(&script(&actions)).await {
        Ok(()) => return Ok(()),
        Err(failure) => failure,
    };
    let mut size = actions.len() / 2;
    while size > 0 {
        let mut begin = 0;
        while begin < actions.len() {
            let mut fewer = actions.clone();
            fewer.drain(begin..(begin + size).min(actions.len()));
            match run(&script(&fewer)).await {
                Ok(()) => begin += size,
                Err(smaller) => (actions, failure) = (fewer, smaller),
            }
        }
        size /= 2;
    }
    Err(failure)
}
