//! Parses scripts.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{ParseError, Source, Statement, Word};
use super::object::{ObjectName, Resource};
use super::parse_items::{self, content, unexpected};
use super::script::{Action, Match, Need, Read, Script, StartVersion, Step, Write};
use super::version_ref::VersionRef;

const STATEMENTS: &str = "put, delete, corrupt, transaction, watch, list, expect, pause, resume, close, compact, cut, \
    disconnect, reconnect, restart or sleep";

impl Script {
    /// Parses the text of a script. `name` is that of its file.
    ///
    /// # Errors
    /// Returns the place of the first mistake, and what was expected there.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        let source = Source::new(name, text);
        let comment = source.lines.first().and_then(|line| line.strip_prefix('#'));
        if comment.is_none_or(|comment| comment.trim().is_empty()) {
            return Err(source.error(
                (1, 1),
                "expected a comment that says which rule the script shows",
            ));
        }
        let mut parser = Parser::default();
        let mut script = Self {
            name: name.to_owned(),
            lines: source.lines.iter().map(ToString::to_string).collect(),
            needs: BTreeSet::new(),
            steps: Vec::new(),
        };
        for statement in source.statements()? {
            let mut words = WordReader {
                source: &source,
                statement: &statement,
                next: 0,
            };
            let verb = words.next("a statement")?;
            if verb.text == "needs" {
                script.needs = needs(&source, &statement)?;
                continue;
            }
            let action = parser.action(&verb, &mut words)?;
            words.end()?;
            if let Some(need) = action.need()
                && !script.needs.contains(&need)
            {
                let message = format!(
                    "this statement needs a line `needs: {}` at the beginning",
                    need.name()
                );
                return Err(source.error(verb.at(), message));
            }
            script.steps.push(Step {
                line: statement.line,
                last_line: statement.last_line,
                action,
            });
        }
        Ok(script)
    }
}

fn needs(source: &Source<'_>, statement: &Statement) -> Result<BTreeSet<Need>, ParseError> {
    let words = statement.items.iter().flatten();
    let needs = words.map(|word| {
        let need = Need::ALL.into_iter().find(|need| need.name() == word.text);
        need.ok_or_else(|| {
            let names: Vec<_> = Need::ALL.iter().map(|need| need.name()).collect();
            unexpected(source, word, &format!("one of {}", names.join(", ")))
        })
    });
    needs.collect()
}

/// The words of a statement, read one after the other.
struct WordReader<'a> {
    source: &'a Source<'a>,
    statement: &'a Statement,
    next: usize,
}

impl WordReader<'_> {
    fn next(&mut self, expected: &str) -> Result<Word, ParseError> {
        let word = self.statement.words.get(self.next).cloned();
        self.next += 1;
        word.ok_or_else(|| {
            self.source.error(
                self.statement.end,
                format!("expected {expected}, found the end of the line"),
            )
        })
    }

    /// Returns the words that are left.
    fn rest(&mut self) -> Vec<Word> {
        let rest = self.statement.words[self.next..].to_vec();
        self.next = self.statement.words.len();
        rest
    }

    fn end(&self) -> Result<(), ParseError> {
        let item = || self.statement.items.first().and_then(|item| item.first());
        let has_items = matches!(
            self.statement.words[0].text.as_str(),
            "expect" | "transaction"
        );
        let extra = self
            .statement
            .words
            .get(self.next)
            .or_else(|| item().filter(|_| !has_items));
        extra.map_or(Ok(()), |word| {
            Err(unexpected(self.source, word, "the end of the statement"))
        })
    }
}

/// The names that earlier statements have defined.
#[derive(Default)]
struct Parser {
    /// The names of the versions so far.
    versions: BTreeSet<u32>,
    /// The watches, and whether each is paused.
    watches: BTreeMap<String, bool>,
    lists: BTreeSet<String>,
}

impl Parser {
    fn action(&mut self, verb: &Word, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let source = words.source;
        Ok(match verb.text.as_str() {
            "put" | "delete" | "corrupt" => self.write(verb, words)?,
            "transaction" => self.transaction(words)?,
            "watch" => {
                let client = words.next("a name for the watch")?;
                let read = self.read(words, true)?;
                self.watches.insert(client.text.clone(), false);
                Action::Watch(client.text, read)
            }
            "list" => {
                let client = words.next("a name for the list")?;
                let read = self.read(words, false)?;
                if !self.lists.insert(client.text.clone()) {
                    return Err(unexpected(source, &client, "a name that no other list has"));
                }
                Action::List(client.text, read)
            }
            "pause" => Action::Pause(self.watch(words, Some(true))?),
            "resume" => Action::Resume(self.watch(words, Some(false))?),
            "close" => {
                let client = self.watch(words, None)?;
                self.watches.remove(&client);
                Action::Close(client)
            }
            "compact" => {
                let word = words.next("a version such as @2")?;
                Action::Compact(self.version(source, &word)?)
            }
            "cut" => Action::Cut,
            "disconnect" => Action::Disconnect,
            "reconnect" => Action::Reconnect,
            "restart" => {
                self.watches.clear();
                Action::Restart
            }
            "sleep" => Action::Sleep(seconds(source, &words.next("a time such as 60s")?)?),
            "expect" => self.expect(words)?,
            _ => return Err(unexpected(source, verb, STATEMENTS)),
        })
    }

    /// Reads the name of an open watch. `pause` is its new state.
    fn watch(
        &mut self,
        words: &mut WordReader<'_>,
        pause: Option<bool>,
    ) -> Result<String, ParseError> {
        let word = words.next("the name of a watch")?;
        match (self.watches.get_mut(&word.text), pause) {
            (None, _) => Err(unexpected(words.source, &word, "the name of an open watch")),
            (Some(paused), Some(pause)) if *paused == pause => {
                let state = if pause {
                    "that reads"
                } else {
                    "that is paused"
                };
                Err(unexpected(
                    words.source,
                    &word,
                    &format!("the name of a watch {state}"),
                ))
            }
            (Some(paused), pause) => {
                *paused = pause.unwrap_or(*paused);
                Ok(word.text)
            }
        }
    }

    fn expect(&self, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let client = words.next("the name of a watch or list")?;
        let is_list = self.lists.contains(&client.text);
        match self.watches.get(&client.text) {
            None if !is_list => {
                return Err(unexpected(
                    words.source,
                    &client,
                    "the name of an open watch or of a list",
                ));
            }
            Some(true) => {
                return Err(unexpected(
                    words.source,
                    &client,
                    "a watch that is not paused",
                ));
            }
            _ => {}
        }
        if words.statement.items.is_empty() {
            let message = format!(
                "expected `: ` and what `{}` receives, or `nothing`",
                client.text
            );
            return Err(words.source.error(words.statement.end, message));
        }
        let version = |word: &Word, text: &str| self.version_in(words.source, word, text);
        let items = parse_items::parse(words.source, &words.statement.items, is_list, &version)?;
        Ok(Action::Expect(client.text, items))
    }

    fn write(&mut self, verb: &Word, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let name = words.next("an object such as pods/a")?;
        let object = object(words.source, &name)?;
        let version = words.next("a name for the version, such as @1")?;
        let version = self.new_version(words.source, &version)?;
        let mut rest = words.rest();
        let mut count = 1;
        if let Some(last) = rest.last()
            && let Some(number) = last.text.strip_prefix('x')
            && !last.text.contains('=')
        {
            count = number
                .parse()
                .map_err(|_| unexpected(words.source, last, "a number such as x200"))?;
            if count < 2 || verb.text != "put" {
                return Err(unexpected(
                    words.source,
                    last,
                    "at least 2 writes, of a put",
                ));
            }
            rest.pop();
        }
        if object.name.contains('*') && count == 1 {
            return Err(unexpected(
                words.source,
                &name,
                "a name without `*`, or a number of writes such as x200 at the end",
            ));
        }
        let write = write(words.source, verb, object, &rest)?;
        Ok(Action::Write {
            writes: vec![write],
            version,
            count,
        })
    }

    fn transaction(&mut self, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let version = words.next("a name for the version, such as @1")?;
        let version = self.new_version(words.source, &version)?;
        let mut writes = Vec::new();
        for item in &words.statement.items {
            let (verb, rest) = item.split_first().expect("items have words");
            if !matches!(verb.text.as_str(), "put" | "delete" | "corrupt") {
                return Err(unexpected(words.source, verb, "put, delete or corrupt"));
            }
            let Some((name, rest)) = rest.split_first() else {
                return Err(unexpected(
                    words.source,
                    verb,
                    "an object such as pods/a after the verb",
                ));
            };
            let object = object(words.source, name)?;
            if writes.iter().any(|write: &Write| *write.object() == object) {
                return Err(unexpected(words.source, name, "each object once"));
            }
            writes.push(write(words.source, verb, object, rest)?);
        }
        if writes.len() < 2 {
            let message = "expected two writes or more, such as `: put pods/a, delete pods/b`";
            return Err(words.source.error(words.statement.end, message));
        }
        Ok(Action::Write {
            writes,
            version,
            count: 1,
        })
    }

    /// Reads the name of the version of a write: greater than those before.
    fn new_version(&mut self, source: &Source<'_>, word: &Word) -> Result<u32, ParseError> {
        let number = word
            .text
            .strip_prefix('@')
            .and_then(|text| text.parse().ok());
        let last = self.versions.last().copied().unwrap_or(0);
        let expected = format!("a new version, such as @{}", last + 1);
        let number = number.filter(|number| *number > last);
        let number = number.ok_or_else(|| unexpected(source, word, &expected))?;
        self.versions.insert(number);
        Ok(number)
    }

    fn version(&self, source: &Source<'_>, word: &Word) -> Result<VersionRef, ParseError> {
        self.version_in(source, word, &word.text)
    }

    /// Reads the version in `text`, a part of a word.
    fn version_in(
        &self,
        source: &Source<'_>,
        word: &Word,
        text: &str,
    ) -> Result<VersionRef, ParseError> {
        let (name, offset) = match text.find(['+', '-']) {
            Some(sign) => (&text[..sign], text[sign..].parse().ok()),
            None => (text, Some(0)),
        };
        let name = match name {
            "@start" => Some(0),
            name => name.strip_prefix('@').and_then(|name| name.parse().ok()),
        };
        let known = name.filter(|name| *name == 0 || self.versions.contains(name));
        match (known, offset) {
            (Some(name), Some(offset)) => Ok(VersionRef { name, offset }),
            _ => {
                let expected = "@start or the version of a write above";
                Err(unexpected(source, word, expected))
            }
        }
    }

    fn read(&self, words: &mut WordReader<'_>, is_watch: bool) -> Result<Read, ParseError> {
        let source = words.source;
        let resource = words.next("pods")?;
        if resource.text != "pods" {
            return Err(unexpected(source, &resource, "pods"));
        }
        let mut read = Read::default();
        for word in words.rest() {
            let (key, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            match (key, is_watch) {
                ("from", _) => {
                    read.from = match value {
                        "0" => StartVersion::Zero,
                        "unset" => StartVersion::Unset,
                        value => StartVersion::At(self.version_in(source, &word, value)?),
                    };
                }
                ("namespace", _) => read.namespace = Some(value.to_owned()),
                ("labels", _) => read.labels = value.to_owned(),
                ("fields", _) => read.fields = value.to_owned(),
                ("match", false) => {
                    let found = [Match::Exact, Match::NotOlderThan]
                        .into_iter()
                        .find(|m| m.name() == value);
                    let found = found.ok_or_else(|| {
                        unexpected(source, &word, "match=Exact or match=NotOlderThan")
                    });
                    read.version_match = Some(found?);
                }
                ("limit", false) => {
                    let limit = value
                        .parse()
                        .map_err(|_| unexpected(source, &word, "a number"));
                    read.limit = Some(limit?);
                }
                ("continue", false) if self.lists.contains(value) => {
                    read.continued = Some(value.to_owned())
                }
                ("continue", false) => return Err(unexpected(source, &word, "the name of a list")),
                ("initial-events", true) if value == "false" => read.initial_events = Some(false),
                ("initial-events", true) if value.is_empty() => read.initial_events = Some(true),
                ("bookmarks", true) => read.bookmarks = true,
                ("timeout", true) => {
                    let word = Word {
                        text: value.to_owned(),
                        ..word
                    };
                    read.timeout_seconds = Some(seconds(source, &word)?);
                }
                (_, true) => {
                    return Err(unexpected(
                        source,
                        &word,
                        "from, namespace, labels, fields, initial-events, bookmarks or timeout",
                    ));
                }
                (_, false) => {
                    return Err(unexpected(
                        source,
                        &word,
                        "from, match, namespace, labels, fields, limit or continue",
                    ));
                }
            }
        }
        Ok(read)
    }
}

fn seconds(source: &Source<'_>, word: &Word) -> Result<u64, ParseError> {
    let number = word
        .text
        .strip_suffix('s')
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| unexpected(source, word, "a number of seconds such as 60s"))
}

/// Parses `pods/a`, `pods/other/a`, `configmaps/x`.
fn object(source: &Source<'_>, word: &Word) -> Result<ObjectName, ParseError> {
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

fn write(
    source: &Source<'_>,
    verb: &Word,
    object: ObjectName,
    rest: &[Word],
) -> Result<Write, ParseError> {
    let content = content(source, rest)?;
    match (verb.text.as_str(), rest.first()) {
        ("put", _) => Ok(Write::Put(object, content)),
        (_, Some(extra)) => Err(unexpected(source, extra, "the end of the statement")),
        ("delete", None) => Ok(Write::Delete(object)),
        (_, None) => Ok(Write::Corrupt(object)),
    }
}
