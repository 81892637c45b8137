//! Parses untrusted text. The parser recurses for each operator and uses some ten kilobytes of stack each time; a stack
//! overflow ends the process. Its error repeats the line for each unknown character. Therefore this module counts the
//! operators first, parses on a thread with a stack of sufficient size, and truncates errors.

use std::fmt::{self, Write as _};

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::Parser;

/// The maximum size of an expression in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// The stack size of the parser per operator, and its minimum.
const STACK_BYTES_PER_OPERATOR: usize = 128 << 10;
const STACK_BYTES_MIN: usize = 2 << 20;

/// The maximum size of a reported error in bytes.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// The limits of an expression. The default is that of webhooks and admission policies.
#[derive(Debug, Clone, Copy)]
pub struct Syntax {
    /// The maximum number of operators and brackets. Most do not nest: the operands of `&&` and `||` are siblings.
    pub operators_max: usize,
    /// The maximum nesting depth after the expansion of macros; `None` for no limit. Walking, evaluating and dropping
    /// an expression recurse, on the stack of any thread.
    pub depth_max: Option<usize>,
    /// True if optional selection is allowed: `a.?b`, `a[?b]`.
    pub has_optional_selection: bool,
}

impl Default for Syntax {
    fn default() -> Self {
        Self {
            operators_max: 2_000,
            depth_max: Some(100),
            has_optional_selection: true,
        }
    }
}

/// The error of a text that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is too long.
    #[error("it is longer than {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    /// The text has more operators and brackets than this limit.
    #[error("it has more than {0} operators and brackets")]
    TooManyOperators(usize),
    /// The parser panicked, or its thread cannot be created.
    #[error("the parser failed: {0}")]
    Failed(String),
    /// The text is not an expression.
    #[error("{0}")]
    Syntax(String),
}

/// Parses `text` on a thread whose stack is large enough for it.
///
/// # Errors
/// The text exceeds the limits of `syntax` or is not an expression, the thread cannot be created, or the parser
/// panicked. The text of an error has at most a few kilobytes.
pub fn parse(text: &str, syntax: &Syntax) -> Result<IdedExpr, ParseError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(ParseError::TooLong);
    }
    let operators = count_operators(text);
    if operators > syntax.operators_max {
        return Err(ParseError::TooManyOperators(syntax.operators_max));
    }
    let stack = STACK_BYTES_MIN + operators * STACK_BYTES_PER_OPERATOR;
    // The parser's error cannot be sent to another thread, but its text can.
    let parse = || parse_on_this_stack(text, syntax).map_err(ParseError::Syntax);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack);
        let parser = thread.spawn_scoped(scope, parse);
        match parser.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(_)) => Err(ParseError::Failed("it panicked".to_owned())),
            Err(error) => Err(ParseError::Failed(error.to_string())),
        }
    })
}

fn parse_on_this_stack(text: &str, syntax: &Syntax) -> Result<IdedExpr, String> {
    let parser = Parser::new().enable_optional_syntax(syntax.has_optional_selection);
    let parsed = parser.parse(text).map_err(|errors| truncated(&errors))?;
    match syntax.depth_max {
        // The expression is dropped on this thread, whose stack is large enough.
        Some(depth) if is_deeper(&parsed, depth) => {
            Err(format!("ERROR: it nests deeper than {depth} levels"))
        }
        _ => Ok(parsed),
    }
}

/// Returns an upper bound of the operators and brackets in `text` that can nest: punctuation except commas and
/// the contents of simple string literals, and the operator `in`.
fn count_operators(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (mut at, mut operators) = (0, 0);
    let mut has_simple_literals = true;
    while let Some(first) = bytes.get(at) {
        let rest = &bytes[at..];
        let (length, counts) = match first {
            b',' => (1, false),
            _ if first.is_ascii_whitespace() => (1, false),
            _ if is_word(first) => {
                let word = &rest[..rest.iter().take_while(|b| is_word(b)).count()];
                // The operator `in` can follow a number without a space.
                let is_in = word == b"in" || first.is_ascii_digit() && word.ends_with(b"in");
                (word.len(), is_in)
            }
            b'"' | b'\'' if has_simple_literals => match simple_literal_length(rest) {
                Some(length) => (length, false),
                // After this literal the ends of literals are unknown.
                None => {
                    has_simple_literals = false;
                    (1, true)
                }
            },
            _ => (1, true),
        };
        at += length;
        operators += usize::from(counts);
    }
    operators
}

/// Returns the length of the string literal at the beginning of `text`, if it has one line, no escapes and is
/// not triple-quoted.
fn simple_literal_length(text: &[u8]) -> Option<usize> {
    let quote = text[0];
    let ends = |b: &u8| *b == quote || matches!(b, b'\\' | b'\n' | b'\r');
    let end = 1 + text[1..].iter().position(ends)?;
    let is_triple = end == 1 && text.get(2) == Some(&quote);
    (text[end] == quote && !is_triple).then_some(end + 1)
}

/// Returns true if `expression` has more than `depth` levels below it.
fn is_deeper(expression: &IdedExpr, depth: usize) -> bool {
    let Some(remaining) = depth.checked_sub(1) else {
        return has_parts(&expression.expr);
    };
    let deeper = |part: &IdedExpr| is_deeper(part, remaining);
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
        Expr::Struct(message) => message.entries.iter().any(|entry| of_entry(&entry.expr)),
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

/// Returns the text of `error`, truncated to a few kilobytes. Stops formatting at the limit.
pub fn truncated(error: &impl fmt::Display) -> String {
    let mut text = TruncatedText(String::new());
    if write!(text, "{error}").is_err() {
        text.0.push_str("...");
    }
    text.0
}

/// A text of at most [`ERROR_BYTES_MAX`]. A write beyond the limit fails.
struct TruncatedText(String);

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let remaining = ERROR_BYTES_MAX - self.0.len();
        let fitting = &more[..more.floor_char_boundary(remaining)];
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

    fn parse(text: &str) -> Result<IdedExpr, ParseError> {
        super::parse(text, &Syntax::default())
    }

    /// A POST request with such an expression ended the process.
    #[test]
    fn deeply_nested_text_does_not_overflow_the_stack() {
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
            assert_eq!(error, ParseError::TooManyOperators(2_000), "{:.40}", text);
        }
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        assert_eq!(parse(&long).unwrap_err(), ParseError::TooLong);
    }

    /// An operator that the parser module does not count would overflow the stack.
    #[test]
    fn operators_are_counted_as_the_parser_reads_them() {
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
            assert_eq!(count_operators(text), count, "{text}");
        }
    }

    /// The errors of sixteen thousand unknown characters had 400 MB of text.
    #[test]
    fn error_texts_are_truncated() {
        let ParseError::Syntax(text) = parse(&"#".repeat(2_000)).unwrap_err() else {
            panic!("not a syntax error");
        };
        assert!(text.starts_with("ERROR: <input>:1:1: "), "{text:.80}");
        assert_eq!(text.len(), ERROR_BYTES_MAX + "...".len());
        let error = parse("object.").unwrap_err().to_string();
        assert!(error.ends_with('^'), "{error}");
    }
}
