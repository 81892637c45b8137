//! `Warning` headers: one per text, truncated to upstream's limits, because clients and proxies
//! limit the size of headers.

use axum::http::header::{HeaderValue, WARNING};
use axum::response::Response;

use watchet_api::Warnings;

/// The maximum number of characters of all texts; above it, each text is truncated.
const TOTAL_CHARS_MAX: usize = 4096;
/// The number of characters that a truncated text keeps.
const TRUNCATED_CHARS: usize = 256;

/// Adds the headers to the response.
pub(crate) fn add_headers(response: &mut Response, warnings: &Warnings) {
    for text in truncate(warnings.texts()) {
        match HeaderValue::from_bytes(header(&text).as_bytes()) {
            Ok(value) => {
                response.headers_mut().append(WARNING, value);
            }
            Err(error) => tracing::error!(text, %error, "invalid warning header"),
        }
    }
}

fn truncate(mut texts: Vec<String>) -> Vec<String> {
    let size = |text: &String| text.chars().count();
    if texts.iter().map(size).sum::<usize>() <= TOTAL_CHARS_MAX {
        return texts;
    }
    for text in &mut texts {
        if let Some((end, _)) = text.char_indices().nth(TRUNCATED_CHARS) {
            text.truncate(end);
        }
    }
    texts.truncate(TOTAL_CHARS_MAX / TRUNCATED_CHARS);
    texts
}

/// Returns the header value. Code 299 is a persistent warning; `-` stands for an unnamed agent.
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
    fn warnings_are_deduplicated_and_quoted() {
        let warnings = Warnings::default();
        for text in ["plain", "a \"quote\"\nof \\ ü", "plain"] {
            warnings.add(text.to_owned());
        }
        let mut response = Response::default();
        add_headers(&mut response, &warnings);
        let actual: Vec<&[u8]> = response
            .headers()
            .get_all(WARNING)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        let expect = [r#"299 - "plain""#, r#"299 - "a \"quote\" of \\ ü""#];
        assert_eq!(actual, expect.map(str::as_bytes));
    }

    #[test]
    fn long_warnings_are_truncated_and_many_are_dropped() {
        let long = |n: usize| format!("{n:03}{}", "ü".repeat(400));
        assert_eq!(truncate(vec![long(0)]), [long(0)], "they fit");
        let cut = truncate((0..30).map(long).collect());
        assert_eq!(cut.len(), 16);
        assert!(cut.iter().all(|text| text.chars().count() == 256));
        assert!(cut[15].starts_with("015"));
    }
}
