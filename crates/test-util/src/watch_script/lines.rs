//! Splits the text of a script into statements and their words, each with its position for error messages.

use std::fmt;

/// An error of the parser: the position, and what the parser expected there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    file: String,
    line: usize,
    column: usize,
    message: String,
    source: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
            source,
        } = self;
        let margin = " ".repeat(line.to_string().len());
        let indent = " ".repeat(column - 1);
        write!(
            f,
            "{file}:{line}:{column}: {message}\n{line} | {source}\n{margin} | {indent}^"
        )
    }
}

impl std::error::Error for ParseError {}

/// A word and its position.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A statement: a line, and the indented lines below it.
#[derive(Debug)]
pub(super) struct Statement {
    /// The words of the line. Quotes are removed: `labels="app in (a, b)"` is one word.
    pub(super) words: Vec<Word>,
    /// The part after `:`, split at commas and lines.
    pub(super) items: Vec<Vec<Word>>,
    pub(super) line: usize,
    pub(super) last_line: usize,
    /// The position after the last word.
    pub(super) end: (usize, usize),
}

/// The text of a script.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) lines: Vec<&'a str>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            lines: text.lines().collect(),
        }
    }

    /// Returns an error at a position, which is a line and a column.
    pub(super) fn error(
        &self,
        (line, column): (usize, usize),
        message: impl Into<String>,
    ) -> ParseError {
        ParseError {
            file: self.file.to_owned(),
            line,
            column,
            message: message.into(),
            source: self
                .lines
                .get(line - 1)
                .copied()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Returns the statements in order.
    pub(super) fn statements(&self) -> Result<Vec<Statement>, ParseError> {
        let mut statements: Vec<Statement> = Vec::new();
        for (index, text) in self.lines.iter().enumerate() {
            let line = index + 1;
            let (head, items, end) = self.split(line, text)?;
            if head.is_empty() && items.is_empty() {
                continue;
            }
            if !text.starts_with([' ', '\t']) {
                let end = (line, end);
                statements.push(Statement {
                    words: head,
                    items,
                    line,
                    last_line: line,
                    end,
                });
                continue;
            }
            let Some(last) = statements.last_mut() else {
                return Err(self.error((line, 1), "expected a statement, found an indented line"));
            };
            // An indented line has items only.
            let joined = std::iter::once(head)
                .chain(items)
                .filter(|item| !item.is_empty());
            last.items.extend(joined);
            (last.last_line, last.end) = (line, (line, end));
        }
        Ok(statements)
    }

    /// Splits a line into the words before the first `: `, the comma-separated items after it, and the column after the last
    /// word. In an indented line, commas separate all items.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn split(
        &self,
        line: usize,
        text: &str,
    ) -> Result<(Vec<Word>, Vec<Vec<Word>>, usize), ParseError> {
        let indented = text.starts_with([' ', '\t']);
        let (mut head, mut items, mut end) = (Vec::new(), Vec::new(), 1);
        let mut in_items = false;
        let mut current: Vec<Word> = Vec::new();
        for mut word in self.words(line, text)? {
            end = word.column + word.text.chars().count();
            if !indented && !in_items {
                let ends_head = word.text.ends_with(':');
                word.text = word.text.trim_end_matches(':').to_owned();
                head.push(word);
                in_items = ends_head;
                continue;
            }
            let ends_item = word.text.ends_with(',');
            word.text = word.text.trim_end_matches(',').to_owned();
            current.push(word);
            if ends_item {
                items.push(std::mem::take(&mut current));
            }
        }
        if !current.is_empty() {
            items.push(current);
        }
        Ok((head, items, end))
    }

    /// Splits a line at white space outside of quotes, up to a comment.
    fn words(&self, line: usize, text: &str) -> Result<Vec<Word>, ParseError> {
        let mut words: Vec<Word> = Vec::new();
        let (mut in_word, mut quote) = (false, None);
        for (index, c) in text.chars().enumerate() {
            let column = index + 1;
            if quote.is_none() && c == '#' && !in_word {
                break;
            }
            if quote.is_none() && c.is_whitespace() {
                in_word = false;
                continue;
            }
            if !in_word {
                words.push(Word {
                    text: String::new(),
                    line,
                    column,
                });
                in_word = true;
            }
            if c == '"' {
                quote = if quote.is_some() { None } else { Some(column) };
                continue;
            }
            words.last_mut().expect("a word has begun").text.push(c);
        }
        match quote {
            Some(column) => Err(self.error((line, column), "this quote is not closed")),
            None => Ok(words),
        }
    }
}

impl Word {
    /// Returns its position.
    pub(super) fn at(&self) -> (usize, usize) {
        (self.line, self.column)
    }
}
