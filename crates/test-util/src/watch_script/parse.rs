//! Parses scripts.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{ParseError, Source, Statement, Word};
use super::need::Need;
use super::needs::NeedFinder;
use super::object::ObjectName;
use super::parse_items::{self, Receiver, content, object_name, unexpected};
use super::script::{
    Action, InformerOptions, Link, Match, Read, Script, StartVersion, Step, Write,
};
use super::version_ref::VersionRef;
use super::word_reader::WordReader;

const STATEMENTS: &str = "put, delete, corrupt, transaction, watch, list, informer, handler, expect, pause, resume, close, \
    compact, cut, disconnect, reconnect, restart or sleep";

impl Script {
    /// Parses the text of a script. `name` is that of its file.
    ///
    /// # Errors
    /// Returns the position of the first mistake, and what was expected there.
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
        let mut verbs = Vec::new();
        for statement in source.statements()? {
            let mut words = WordReader::new(&source, &statement);
            let verb = words.next("a statement")?;
            if verb.text == "needs" {
                script.needs = needs(&source, &statement)?;
                continue;
            }
            let action = parser.action(&verb, &mut words)?;
            words.end()?;
            verbs.push(verb);
            script.steps.push(Step {
                line: statement.line,
                last_line: statement.last_line,
                action,
            });
        }
        let mut finder = NeedFinder::default();
        for (verb, step) in verbs.iter().zip(&script.steps) {
            let needs = finder.needs(&step.action);
            if let Some(need) = needs.difference(&script.needs).next() {
                let message = format!(
                    "this statement needs a line `needs: {}` at the beginning",
                    need.name()
                );
                return Err(source.error(verb.at(), message));
            }
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

/// The names that earlier statements have defined.
#[derive(Default)]
struct Parser {
    /// The names of the versions so far.
    versions: BTreeSet<u32>,
    /// The watches and handlers.
    clients: BTreeMap<String, Client>,
    lists: BTreeSet<String>,
    informers: BTreeSet<String>,
}

#[derive(Clone, Copy)]
struct Client {
    is_paused: bool,
    is_handler: bool,
}

impl Parser {
    fn action(&mut self, verb: &Word, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let source = words.source;
        Ok(match verb.text.as_str() {
            "put" | "delete" | "corrupt" => self.write(verb, words)?,
            "transaction" => self.transaction(words)?,
            "watch" => {
                let client = self.new_client(words, "a name for the watch", false)?;
                Action::Watch(client, self.read(words, Reader::Watch)?.0)
            }
            "list" => {
                let list = self.new_name(words, "a name for the list")?;
                let (read, _) = self.read(words, Reader::List)?;
                self.lists.insert(list.clone());
                Action::List(list, read)
            }
            "informer" => {
                let informer = self.new_name(words, "a name for the informer")?;
                let (read, options) = self.read(words, Reader::Informer)?;
                self.informers.insert(informer.clone());
                Action::Informer(informer, read, options)
            }
            "handler" => {
                let client = self.new_client(words, "a name for the handler", true)?;
                Action::Handler(client, self.informer(words)?)
            }
            "pause" => Action::Pause(self.client(words, Some(true))?),
            "resume" => Action::Resume(self.client(words, Some(false))?),
            "close" => {
                let client = self.client(words, None)?;
                self.clients.remove(&client);
                Action::Close(client)
            }
            "compact" => {
                let word = words.next("a version such as @2")?;
                Action::Compact(self.version(source, &word)?)
            }
            "cut" => Action::Cut(self.link(words)?),
            "disconnect" => Action::Disconnect(self.link(words)?),
            "reconnect" => Action::Reconnect(self.link(words)?),
            "restart" => {
                self.clients.retain(|_, client| client.is_handler);
                Action::Restart
            }
            "sleep" => Action::Sleep(seconds(source, &words.next("a time such as 60s")?)?),
            "expect" => self.expect(words)?,
            _ => return Err(unexpected(source, verb, STATEMENTS)),
        })
    }

    /// Reads the name of a watch or handler. A watch replaces one with the same name, which is then closed.
    fn new_client(
        &mut self,
        words: &mut WordReader<'_>,
        expected: &str,
        is_handler: bool,
    ) -> Result<String, ParseError> {
        let word = words.next(expected)?;
        let known = self.clients.get(&word.text);
        let replaces_watch = !is_handler && known.is_some_and(|client| !client.is_handler);
        if !replaces_watch {
            self.check_new(words.source, &word)?;
        }
        let client = Client {
            is_paused: false,
            is_handler,
        };
        self.clients.insert(word.text.clone(), client);
        Ok(word.text)
    }

    /// Reads the name of a list or informer.
    fn new_name(&self, words: &mut WordReader<'_>, expected: &str) -> Result<String, ParseError> {
        let word = words.next(expected)?;
        self.check_new(words.source, &word)?;
        Ok(word.text)
    }

    fn check_new(&self, source: &Source<'_>, word: &Word) -> Result<(), ParseError> {
        let is_used = self.clients.contains_key(&word.text)
            || self.lists.contains(&word.text)
            || self.informers.contains(&word.text);
        match is_used {
            true => Err(unexpected(source, word, "a name that is not in use")),
            false => Ok(()),
        }
    }

    /// Reads the name of an informer.
    fn informer(&self, words: &mut WordReader<'_>) -> Result<String, ParseError> {
        let word = words.next("the name of an informer")?;
        match self.informers.contains(&word.text) {
            true => Ok(word.text),
            false => Err(unexpected(words.source, &word, "the name of an informer")),
        }
    }

    /// Reads the name of an informer, if there is one: without it, the connection is that to storage.
    fn link(&self, words: &mut WordReader<'_>) -> Result<Link, ParseError> {
        match words.is_at_end() {
            true => Ok(Link::Storage),
            false => Ok(Link::Informer(self.informer(words)?)),
        }
    }

    /// Reads the name of an open watch or of a handler. `pause` is its new state.
    fn client(
        &mut self,
        words: &mut WordReader<'_>,
        pause: Option<bool>,
    ) -> Result<String, ParseError> {
        let word = words.next("the name of a watch or handler")?;
        let Some(client) = self.clients.get_mut(&word.text) else {
            let expected = "the name of an open watch or of a handler";
            return Err(unexpected(words.source, &word, expected));
        };
        if pause == Some(client.is_paused) {
            let expected = match client.is_paused {
                true => "the name of a watch or handler that reads",
                false => "the name of a watch or handler that is paused",
            };
            return Err(unexpected(words.source, &word, expected));
        }
        client.is_paused = pause.unwrap_or(client.is_paused);
        Ok(word.text)
    }

    fn expect(&self, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let name = words.next("the name of a watch, list, informer or handler")?;
        let error = |expected: &str| Err(unexpected(words.source, &name, expected));
        let receiver = match self.clients.get(&name.text) {
            Some(client) if client.is_paused => {
                return error("a watch or handler that is not paused");
            }
            Some(client) if client.is_handler => Receiver::Handler,
            Some(_) => Receiver::Watch,
            None if self.lists.contains(&name.text) => Receiver::List,
            None if self.informers.contains(&name.text) => Receiver::Informer,
            None => return error("the name of an open watch, or of a list, informer or handler"),
        };
        if words.statement.items.is_empty() {
            let message = format!(
                "expected `: ` and what `{}` receives, or `nothing`",
                name.text
            );
            return Err(words.source.error(words.statement.end, message));
        }
        let version = |word: &Word, text: &str| self.version_in(words.source, word, text);
        let items = parse_items::parse(words.source, &words.statement.items, receiver, &version)?;
        Ok(Action::Expect(name.text, items))
    }

    fn write(&mut self, verb: &Word, words: &mut WordReader<'_>) -> Result<Action, ParseError> {
        let name = words.next("an object such as pods/a")?;
        let object = object_name(words.source, &name)?;
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
            let object = object_name(words.source, name)?;
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

    /// Reads the parameters of a watch, a list or an informer.
    fn read(
        &self,
        words: &mut WordReader<'_>,
        reader: Reader,
    ) -> Result<(Read, InformerOptions), ParseError> {
        let source = words.source;
        let resource = words.next("pods")?;
        if resource.text != "pods" {
            return Err(unexpected(source, &resource, "pods"));
        }
        let (mut read, mut options) = (Read::default(), InformerOptions::default());
        for word in words.rest() {
            let (key, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            match (key, reader) {
                ("namespace", _) => read.namespace = Some(value.to_owned()),
                ("labels", _) => read.labels = value.to_owned(),
                ("fields", _) => read.fields = value.to_owned(),
                ("from", Reader::Watch | Reader::List) => {
                    read.from = match value {
                        "0" => StartVersion::Zero,
                        "unset" => StartVersion::Unset,
                        value => StartVersion::At(self.version_in(source, &word, value)?),
                    };
                }
                ("match", Reader::List) => read.version_match = Some(version_match(source, &word)?),
                ("limit", Reader::List) => {
                    let limit = value.parse();
                    let limit = limit.map_err(|_| unexpected(source, &word, "a number"));
                    read.limit = Some(limit?);
                }
                ("continue", Reader::List) if self.lists.contains(value) => {
                    read.continued = Some(value.to_owned());
                }
                ("continue", Reader::List) => {
                    return Err(unexpected(source, &word, "the name of a list"));
                }
                ("initial-events", Reader::Watch) => read.initial_events = Some(value != "false"),
                ("bookmarks", Reader::Watch) => read.bookmarks = true,
                ("timeout", Reader::Watch) => {
                    read.timeout_seconds = Some(seconds_after_key(source, &word)?);
                }
                ("watch-list", Reader::Informer) if value == "false" => options.watch_list = false,
                ("resync", Reader::Informer) => {
                    options.resync_seconds = seconds_after_key(source, &word)?;
                }
                _ => return Err(unexpected(source, &word, reader.parameters())),
            }
        }
        Ok((read, options))
    }
}

/// What has the parameters of a read.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Watch,
    List,
    Informer,
}

impl Reader {
    fn parameters(self) -> &'static str {
        match self {
            Self::Watch => "from, namespace, labels, fields, initial-events, bookmarks or timeout",
            Self::List => "from, match, namespace, labels, fields, limit or continue",
            Self::Informer => "namespace, labels, fields, watch-list=false or resync",
        }
    }
}

fn version_match(source: &Source<'_>, word: &Word) -> Result<Match, ParseError> {
    [Match::Exact, Match::NotOlderThan]
        .into_iter()
        .find(|m| word.text.ends_with(&format!("={}", m.name())))
        .ok_or_else(|| unexpected(source, word, "match=Exact or match=NotOlderThan"))
}

/// Parses `timeout=10s`.
fn seconds_after_key(source: &Source<'_>, word: &Word) -> Result<u64, ParseError> {
    let value = word.text.split_once('=').map_or("", |(_, value)| value);
    let value = Word {
        text: value.to_owned(),
        ..word.clone()
    };
    seconds(source, &value)
}

fn seconds(source: &Source<'_>, word: &Word) -> Result<u64, ParseError> {
    let number = word
        .text
        .strip_suffix('s')
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| unexpected(source, word, "a number of seconds such as 60s"))
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
