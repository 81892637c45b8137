//! Parses the items of an expectation, and the content of objects.

use super::item::{EventKind, Item, ObjectItem, ObjectVersion};
use super::lines::{ParseError, Source, Word};
use super::object::Content;
use super::version_ref::VersionRef;

/// Resolves a version in a part of a word.
type ParseVersion<'a> = dyn Fn(&Word, &str) -> Result<VersionRef, ParseError> + 'a;

const OF_WATCH: &str = "ADDED, MODIFIED, DELETED, BOOKMARK, ERROR, closed or nothing";
const OF_LIST: &str = "an object such as a@1, version, remaining, continue, ERROR or nothing";

/// Parses the items after `expect NAME:`.
pub(super) fn parse(
    source: &Source<'_>,
    items: &[Vec<Word>],
    is_list: bool,
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
        .map(|words| item(source, words, is_list, version))
        .collect()
}

fn item(
    source: &Source<'_>,
    words: &[Word],
    is_list: bool,
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
        .find(|kind| kind.name() == first.text && !is_list)
    {
        let name = after("an object such as a@2")?;
        return Ok(Item::Object(object(
            source,
            Some(kind),
            name,
            &rest[1..],
            version,
        )?));
    }
    match (first.text.as_str(), is_list) {
        ("BOOKMARK", false) => {
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
        ("closed", false) => ends(0).map(|()| Item::Closed),
        ("ERROR", _) => {
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
        ("version", true) => {
            let word = after("a version such as @2")?;
            ends(1)?;
            Ok(Item::ListVersion(version(word, &word.text)?))
        }
        ("remaining", true) => {
            let word = after("a number")?;
            ends(1)?;
            word.text
                .parse()
                .map(Item::Remaining)
                .map_err(|_| error(word, "a number"))
        }
        ("continue", true) => ends(0).map(|()| Item::Continue),
        (text, true) if text.contains('@') => {
            Ok(Item::Object(object(source, None, first, rest, version)?))
        }
        (_, true) => Err(error(first, OF_LIST)),
        (_, false) => Err(error(first, OF_WATCH)),
    }
}

/// Parses `a@2 app=web`, `other/a@2`, `b-*@3.1 x200`.
fn object(
    source: &Source<'_>,
    kind: Option<EventKind>,
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
