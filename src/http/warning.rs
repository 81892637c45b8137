//! `Warning` headers (§8.3): one a text, within upstream's limits, because clients and proxies bound
//! the size of heads. What is warned of is found elsewhere.

use axum::http::header::{HeaderValue, WARNING};
use axum::response::Response;

use crate::api::Warnings;

/// Characters of all texts together; when they are more, each is cut.
const TOTAL_CHARS_MAX: usize = 4096;
/// Characters of each text that is cut.
const CUT_CHARS: usize = 256;

/// Adds the headers.
pub(crate) fn warn(response: &mut Response, warnings: &Warnings) {
    for text in fitting(warnings.texts()) {
        match HeaderValue::from_bytes(header(&text).as_bytes()) {
            Ok(value) => {
                response.headers_mut().append(WARNING, value);
            }
            Err(error) => tracing::error!(text, %error, "a warning cannot be sent"),
        }
    }
}

fn fitting(mut texts: Vec<String>) -> Vec<String> {
    let size = |text: &String| text.chars().count();
    if texts.iter().map(size).sum::<usize>() <= TOTAL_CHARS_MAX {
        return texts;
    }
    for text in &mut texts {
        if let Some((end, _)) = text.char_indices().nth(CUT_CHARS) {
            text.truncate(end);
        }
    }
    texts.truncate(TOTAL_CHARS_MAX / CUT_CHARS);
    texts
}

/// Code 299 is one that persists; `-` is a server that does not say its name.
fn header(text: &str) -> String {
    let mut value = String::with_capacity(text.len() + 8);
    value.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => value.extend(['\\', c]),
            c if c.is_control() => value.push(' '),
            c => value.push(c),
        }
    }
    value.push('"');
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_told_once_and_quoted() {
        let warnings = Warnings::default();
        for text in ["plain", "a \"quote\"\nof \\ ü", "plain"] {
            warnings.add(text.to_owned());
        }
        let mut response = Response::default();
        warn(&mut response, &warnings);
        let told: Vec<&[u8]> = response
            .headers()
            .get_all(WARNING)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        let expect = [r#"299 - "plain""#, r#"299 - "a \"quote\" of \\ ü""#];
        assert_eq!(told, expect.map(str::as_bytes));
    }

    #[test]
    fn long_warnings_are_cut_and_many_are_dropped() {
        let long = |n: usize| format!("{n:03}{}", "ü".repeat(400));
        assert_eq!(fitting(vec![long(0)]), [long(0)], "they fit");
        let cut = fitting((0..30).map(long).collect());
        assert_eq!(cut.len(), 16);
        assert!(cut.iter().all(|text| text.chars().count() == 256));
        assert!(cut[15].starts_with("015"));
    }
}
