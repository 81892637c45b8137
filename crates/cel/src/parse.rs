//! Parsing what strangers wrote. The crate's parser calls itself for each operator with some ten kilobytes
//! of stack, which an overflow of takes the process with it, and it tells of each character that it does
//! not know with the whole line. So an expression is measured before it is parsed, parsed on a stack that
//! is large enough for it, and what is wrong with it is told in so many bytes. What an expression means,
//! and what evaluating it takes, is not known here.

use std::fmt::{self, Write as _};

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::Parser;

/// How many bytes an expression may have.
pub const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// How deep an expression of this room may nest, macros expanded: who walks, evaluates or drops it calls
/// himself for each level, on the stack of any thread.
const DEPTH_MAX: usize = 100;

/// How many marks it may have. Most of them nest nothing: the parts of `&&` and `||` stand side by side.
const MARKS_MAX: usize = 2_000;

/// What the parser may take of the stack for each mark, and for all else.
const STACK_BYTES_OF_MARK: usize = 128 << 10;
const STACK_BYTES_MIN: usize = 2 << 20;

/// How much is told of what is wrong.
const TOLD_BYTES_MAX: usize = 4 << 10;

/// Why a text was not parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is too long.
    #[error("it is longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    /// It has more than so many marks.
    #[error("it has more than {0} operators and brackets")]
    TooManyMarks(usize),
    /// The parser panicked, or there is no thread for it.
    #[error("the parser gave up on it: {0}")]
    GaveUp(String),
    /// It is no expression.
    #[error("{0}")]
    Syntax(String),
}

/// What `parse` makes of `text`, which it is called for if `text` has at most `marks_max` marks, on a stack
/// that is large enough for that.
///
/// # Errors
/// The text is too large, there are no more threads, or `parse` panicked or failed. How `parse` failed is
/// told up to a few kilobytes.
pub fn parse_with<T: Send, E: fmt::Display>(
    text: &str,
    marks_max: usize,
    parse: impl FnOnce(&str) -> Result<T, E> + Send,
) -> Result<T, ParseError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(ParseError::TooLong);
    }
    let marks = marks(text);
    if marks > marks_max {
        return Err(ParseError::TooManyMarks(marks_max));
    }
    let stack = STACK_BYTES_MIN + marks * STACK_BYTES_OF_MARK;
    // An error need not be one that other threads may see: its text is.
    let parse = || parse(text).map_err(|error| ParseError::Syntax(shortened(&error)));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack);
        let parser = thread.spawn_scoped(scope, parse);
        match parser.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) => Err(ParseError::GaveUp("it panicked".to_owned())),
            Err(error) => Err(ParseError::GaveUp(error.to_string())),
        }
    })
}

/// The expression that `text` is, no deeper than every stack has room for.
pub(in crate::admission) fn parse(text: &str) -> Result<IdedExpr, ParseError> {
    parse_with(text, MARKS_MAX, |text| {
        let parser = Parser::new().enable_optional_syntax(true);
        let parsed = parser.parse(text).map_err(|errors| shortened(&errors))?;
        match is_deeper(&parsed, DEPTH_MAX) {
            false => Ok(parsed),
            // It is dropped here, where there is room for that.
            true => Err(format!("ERROR: it nests deeper than {DEPTH_MAX} levels")),
        }
    })
}

/// How many of the marks in `text` can nest something in something, at most: all but commas, those in
/// quotes that are as plain as most are, and the word `in`, which is an operator.
fn marks(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (mut at, mut marks) = (0, 0);
    let mut has_plain_quotes = true;
    while let Some(first) = bytes.get(at) {
        let rest = &bytes[at..];
        let (length, counts) = match first {
            b',' => (1, false),
            _ if first.is_ascii_whitespace() => (1, false),
            _ if is_word(first) => {
                let word = &rest[..rest.iter().take_while(|b| is_word(b)).count()];
                // A number ends where the word begins, space or not.
                let is_in = word == b"in" || first.is_ascii_digit() && word.ends_with(b"in");
                (word.len(), is_in)
            }
            b'"' | b'\'' if has_plain_quotes => match plain_quotes(rest) {
                Some(length) => (length, false),
                // From here on it is not known what is within quotes.
                None => {
                    has_plain_quotes = false;
                    (1, true)
                }
            },
            _ => (1, true),
        };
        at += length;
        marks += usize::from(counts);
    }
    marks
}

/// The length of the string that `text` begins with, when that has one line, no escapes and single quotes.
fn plain_quotes(text: &[u8]) -> Option<usize> {
    let quote = text[0];
    let ends = |b: &u8| *b == quote || matches!(b, b'\\' | b'\n' | b'\r');
    let end = 1 + text[1..].iter().position(ends)?;
    let is_triple = end == 1 && text.get(2) == Some(&quote);
    (text[end] == quote && !is_triple).then_some(end + 1)
}

/// Whether something in `expression` is more than `depth` levels below it.
fn is_deeper(expression: &IdedExpr, depth: usize) -> bool {
    let Some(left) = depth.checked_sub(1) else {
        return has_parts(&expression.expr);
    };
    let deeper = |part: &IdedExpr| is_deeper(part, left);
    let of_entry = |entry: &EntryExpr| match entry {
        EntryExpr::MapEntry(entry) => deeper(&entry.key) || deeper(&entry.value),
        EntryExpr::StructField(field) => deeper(&field.value),
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => false,
        Expr::Select(select) => deeper(&select.operand),
        Expr::Call(call) => {
            call.target.as_deref().is_some_and(deeper) || call.args.iter().any(deeper)
        }
        Expr::List(list) => list.elements.iter().any(deeper),
        Expr::Map(map) => map.entries.iter().any(|entry| of_entry(&entry.expr)),
        Expr::Struct(made) => made.entries.iter().any(|entry| of_entry(&entry.expr)),
        Expr::Comprehension(folded) => [
            &folded.iter_range,
            &folded.accu_init,
            &folded.loop_cond,
            &folded.loop_step,
            &folded.result,
        ]
        .into_iter()
        .any(deeper),
    }
}

fn has_parts(expression: &Expr) -> bool {
    !matches!(
        expression,
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_)
    )
}

/// The text of `error`, which is written no further than it is told.
pub(in crate::admission) fn shortened(error: &impl fmt::Display) -> String {
    let mut told = Told(String::new());
    if write!(told, "{error}").is_err() {
        told.0.push_str("...");
    }
    told.0
}

/// A text that takes no more than it has room for.
struct Told(String);

impl fmt::Write for Told {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = TOLD_BYTES_MAX - self.0.len();
        let fitting = &more[..more.floor_char_boundary(room)];
        self.0.push_str(fitting);
        match fitting.len() == more.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by reading: one POST of such an expression ended the process.
    #[test]
    fn no_text_takes_the_stack_of_who_asks() {
        let on_a_small_stack = || {
            for (text, nests) in [
                (format!("\"1\"{}", "+\"1\"".repeat(1_990)), true),
                (format!("{}true", "!".repeat(1_990)), false),
                (format!("1{}", " in x".repeat(1_990)), true),
                (format!("1{}", "<1".repeat(1_990)), true),
                (format!("object{}", ".a".repeat(1_990)), true),
                (format!("object{}", "[0]".repeat(990)), true),
                (format!("{}1{}", "(".repeat(990), ")".repeat(990)), true),
                (format!("{}1{}", "[".repeat(990), "]".repeat(990)), true),
                ("true ? ".repeat(490) + "1" + &" : 1".repeat(490), true),
                (format!("true{}", " && true".repeat(990)), false),
                (format!("[1{}]", ",1".repeat(5_000)), false),
                (format!("x in ['a'{}]", ",'a/b:1.2'".repeat(1_000)), false),
            ] {
                assert_eq!(parse(&text).is_err(), nests, "{:.40}", text);
            }
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        thread.spawn(on_a_small_stack).unwrap().join().unwrap();
        for text in [
            format!("\"1\"{}", "+1".repeat(8_000)),
            format!("object{}", ".a".repeat(8_000)),
            format!("1{}", " in 1".repeat(3_000)),
            format!("1{}", "in 1".repeat(3_000)),
            format!("'''a'''{}", "+'b'".repeat(3_000)),
        ] {
            let error = parse(&text).unwrap_err();
            assert_eq!(error, ParseError::TooManyMarks(MARKS_MAX), "{:.40}", text);
        }
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        assert_eq!(parse(&long).unwrap_err(), ParseError::TooLong);
    }

    /// What hides an operator from the count would take the stack.
    #[test]
    fn marks_are_counted_as_the_parser_reads_them() {
        for (text, count) in [
            ("a + b.c(d, 1) == -2", 7),
            ("'a.b' + \"it's\" + r'\"'", 2),
            ("a in b || min in c", 4),
            ("1in [1]", 3),
            ("'\\'' + 'x.y'", 8),
            ("'''a''' + ''", 9),
            ("'' + ''", 1),
            ("'a\n+'", 3),
            ("é", 2),
        ] {
            assert_eq!(marks(text), count, "{text}");
        }
    }

    /// Found by reading: the errors of sixteen thousand unknown characters took 400 MB of text.
    #[test]
    fn what_is_wrong_is_told_in_so_many_bytes() {
        let ParseError::Syntax(told) = parse(&"#".repeat(MARKS_MAX)).unwrap_err() else {
            panic!("it is no expression");
        };
        assert!(told.starts_with("ERROR: <input>:1:1: "), "{told:.80}");
        assert_eq!(told.len(), TOLD_BYTES_MAX + "...".len());
        let error = parse("object.").unwrap_err().to_string();
        assert!(error.ends_with('^'), "{error}");
    }
}
