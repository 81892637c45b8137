//! Parses the items of an expectation, and the names and the content of objects.

use super::item::{
    EventKind, FINAL_STATE_UNKNOWN, IN_INITIAL_LIST, Item, ItemKind, Notification, ObjectItem,
    ObjectVersion,
};
use super::lines::{ParseError, Source, Word};
use super::object::{Content, ObjectName, Resource};
use super::version_ref::VersionRef;

/// Resolves a version in a part of a word.
type ParseVersion<'a> = dyn Fn(&Word, &str) -> Result<VersionRef, ParseError> + 'a;

/// What an expectation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    Watch,
    List,
    /// The indexer of an informer.
    Informer,
    Handler,
}

impl Receiver {
    fn items(self) -> &'static str {
        match self {
            Self::Watch => OF_WATCH,
            Self::List => OF_LIST,
            Self::Informer => OF_INFORMER,
            Self::Handler => OF_HANDLER,
        }
    }
}

const OF_WATCH: &str = "ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, closed or nothing";
const OF_LIST: &str = "an object such as a@1, version, remaining, continue, ERROR or nothing";
const OF_INFORMER: &str = "an object such as a@1, version or nothing";
const OF_HANDLER: &str = "on_add, on_update, on_delete, closed or nothing";

/// Parses the items after `expect NAME:`.
pub(super) fn parse(
    source: &Source<'_>,
    items: &[Vec<Word>],
    receiver: Receiver,
    version: &ParseVersion<'_>,
) -> Result<Vec<Item>, ParseError> {
    if let [only] = items
        && let [word] = only.as_slice()
        && word.text == "nothing"
    {
        return Ok(Vec::new());
    }
    items
        .iter()
        .map(|words| item(source, words, receiver, version))
        .collect()
}

fn item(
    source: &Source<'_>,
    words: &[Word],
    receiver: Receiver,
    version: &ParseVersion<'_>,
) -> Result<Item, ParseError> {
    let (first, rest) = words.split_first().expect("items have words");
    let error = |word: &Word, expected: &str| unexpected(source, word, expected);
    let after = |expected: &str| {
        let (line, column) = first.at();
        rest.first().ok_or_else(|| {
            let place = (line, column + first.text.chars().count());
            source.error(place, format!("expected {expected} after {}", first.text))
        })
    };
    let ends = |count: usize| {
        rest.get(count).map_or(Ok(()), |word| {
            Err(error(word, "a comma or the end of the line"))
        })
    };
    if let Some(kind) = EventKind::ALL
        .into_iter()
        .find(|kind| kind.name() == first.text && receiver == Receiver::Watch)
    {
        let name = after("an object such as a@2")?;
        return Ok(Item::Object(object(
            source,
            ItemKind::Event(kind),
            name,
            &rest[1..],
            version,
        )?));
    }
    match (first.text.as_str(), receiver) {
        ("on_add" | "on_update" | "on_delete", Receiver::Handler) => {
            after("an object such as a@2")?;
            Ok(Item::Object(notification(source, first, rest, version)?))
        }
        ("BOOKMARK", Receiver::Watch) => {
            let word = after("a version such as @2")?;
            let is_initial_events_end = rest
                .get(1)
                .is_some_and(|word| word.text == "initial-events-end");
            ends(1 + usize::from(is_initial_events_end))?;
            Ok(Item::Bookmark {
                version: version(word, &word.text)?,
                is_initial_events_end,
            })
        }
        ("closed", Receiver::Watch | Receiver::Handler) => ends(0).map(|()| Item::Closed),
        ("ERROR", Receiver::Watch | Receiver::List) => {
            let code = after("a code and a reason, such as 410 Expired")?;
            let number = code
                .text
                .parse()
                .map_err(|_| error(code, "a code such as 410"))?;
            let reason = rest
                .get(1)
                .ok_or_else(|| error(code, "a code and a reason, such as 410 Expired"))?;
            ends(2)?;
            Ok(Item::Error(number, reason.text.clone()))
        }
        ("version", Receiver::List | Receiver::Informer) => {
            let word = after("a version such as @2")?;
            ends(1)?;
            Ok(Item::ListVersion(version(word, &word.text)?))
        }
        ("remaining", Receiver::List) => {
            let word = after("a number")?;
            ends(1)?;
            word.text
                .parse()
                .map(Item::Remaining)
                .map_err(|_| error(word, "a number"))
        }
        ("continue", Receiver::List) => ends(0).map(|()| Item::Continue),
        (text, Receiver::List | Receiver::Informer) if text.contains('@') => {
            let listed = object(source, ItemKind::Listed, first, rest, version)?;
            Ok(Item::Object(listed))
        }
        _ => Err(error(first, receiver.items())),
    }
}

/// Parses `on_add a@1 initial-list app=web`, `on_update a@1 a@2 app=web`, `on_delete a@2 final-state-unknown`. `rest` is what
/// follows the verb, with at least one word.
fn notification(
    source: &Source<'_>,
    verb: &Word,
    rest: &[Word],
    version: &ParseVersion<'_>,
) -> Result<ObjectItem, ParseError> {
    let (first, rest) = rest.split_first().expect("the caller checks it");
    let has_mark = |mark: &str| rest.first().is_some_and(|word| word.text == mark);
    let (kind, is_marked) = match verb.text.as_str() {
        "on_add" => {
            let is_in_initial_list = has_mark(IN_INITIAL_LIST);
            (
                Notification::Added { is_in_initial_list },
                is_in_initial_list,
            )
        }
        "on_delete" => {
            let is_final_state_unknown = has_mark(FINAL_STATE_UNKNOWN);
            let kind = Notification::Deleted {
                is_final_state_unknown,
            };
            (kind, is_final_state_unknown)
        }
        _ => {
            let old = object(source, ItemKind::Listed, first, &[], version)?;
            let expected = "the old object and the new one, such as a@1 a@2";
            let (new, rest) = rest
                .split_first()
                .ok_or_else(|| unexpected(source, first, expected))?;
            let kind = ItemKind::Notification(Notification::Updated { old: old.version });
            let item = object(source, kind, new, rest, version)?;
            return match item.name == old.name {
                true => Ok(item),
                false => Err(unexpected(source, new, expected)),
            };
        }
    };
    let rest = &rest[usize::from(is_marked)..];
    object(source, ItemKind::Notification(kind), first, rest, version)
}

/// Parses `a@2 app=web`, `other/a@2`, `b-*@3.1 x200`.
fn object(
    source: &Source<'_>,
    kind: ItemKind,
    word: &Word,
    rest: &[Word],
    version: &ParseVersion<'_>,
) -> Result<ObjectItem, ParseError> {
    let error = |word: &Word, expected: &str| unexpected(source, word, expected);
    let Some((name, at)) = word
        .text
        .split_once('@')
        .filter(|(name, _)| !name.is_empty())
    else {
        return Err(error(word, "an object and its version, such as a@2"));
    };
    let (at, index) = match at.split_once('.') {
        Some((at, index)) => {
            let index = index.parse().ok().filter(|index| *index > 0);
            (
                at,
                Some(index.ok_or_else(|| {
                    error(word, "the number of a write of a burst, such as @3.1")
                })?),
            )
        }
        None => (at, None),
    };
    let (mut rest, mut count) = (rest, 1);
    if let Some((last, before)) = rest.split_last()
        && let Some(number) = last.text.strip_prefix('x')
        && !last.text.contains('=')
    {
        count = number
            .parse()
            .map_err(|_| error(last, "a number such as x200"))?;
        rest = before;
        if index.is_none() {
            return Err(error(
                word,
                "a write of a burst, such as b@3.1, before a number of events",
            ));
        }
    }
    Ok(ObjectItem {
        kind,
        name: name.to_owned(),
        version: ObjectVersion {
            version: version(word, &format!("@{at}"))?,
            index,
        },
        content: (!rest.is_empty())
            .then(|| content(source, rest))
            .transpose()?,
        count,
    })
}

/// Parses `pods/a`, `pods/other/a`, `configmaps/x`.
pub(super) fn object_name(source: &Source<'_>, word: &Word) -> Result<ObjectName, ParseError> {
    let parts: Vec<&str> = word.text.split('/').collect();
    let (resource, namespace, name) = match parts[..] {
        [resource, name] => (resource, "default", name),
        [resource, namespace, name] => (resource, namespace, name),
        _ => ("", "", ""),
    };
    let resource = [Resource::Pods, Resource::ConfigMaps]
        .into_iter()
        .find(|r| r.plural() == resource);
    match resource {
        Some(resource) if !namespace.is_empty() && !name.is_empty() => Ok(ObjectName {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err(unexpected(
            source,
            word,
            "an object such as pods/a, pods/other-namespace/a or configmaps/x",
        )),
    }
}

/// Parses `app=web spec.nodeName=n1`: labels and a field.
pub(super) fn content(source: &Source<'_>, words: &[Word]) -> Result<Content, ParseError> {
    let mut content = Content::default();
    for word in words {
        match word.text.split_once('=') {
            Some(("spec.nodeName", value)) => content.node_name = value.to_owned(),
            Some((key, value)) if !key.is_empty() && !key.starts_with("spec.") => {
                content.labels.insert(key.to_owned(), value.to_owned());
            }
            _ => {
                return Err(unexpected(
                    source,
                    word,
                    "a label such as app=web, or spec.nodeName=n1",
                ));
            }
        }
    }
    Ok(content)
}

/// Returns the error of a word.
pub(super) fn unexpected(source: &Source<'_>, word: &Word, expected: &str) -> ParseError {
    source.error(
        word.at(),
        format!("expected {expected}, found `{}`", word.text),
    )
}
