//! Reads the words of a statement.

use super::lines::{ParseError, Source, Statement, Word};
use super::parse_items::unexpected;

/// The words of a statement, read one after the other.
pub(super) struct WordReader<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) statement: &'a Statement,
    next: usize,
}

impl<'a> WordReader<'a> {
    pub(super) fn new(source: &'a Source<'a>, statement: &'a Statement) -> Self {
        Self {
            source,
            statement,
            next: 0,
        }
    }

    pub(super) fn next(&mut self, expected: &str) -> Result<Word, ParseError> {
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
    pub(super) fn rest(&mut self) -> Vec<Word> {
        let rest = self.statement.words[self.next..].to_vec();
        self.next = self.statement.words.len();
        rest
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.next >= self.statement.words.len()
    }

    pub(super) fn end(&self) -> Result<(), ParseError> {
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
