//! Escaped text, tables and the frame of a page.

use std::fmt::Write as _;

/// The styles of all pages.
const STYLE: &str = include_str!("style.css");

/// Escapes a text for element content and for attributes in double quotes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a self-contained page with this content, which must be HTML. The page has no scripts and
/// no external resources, and its Content-Security-Policy forbids both.
pub(super) fn page(title: &str, content: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{content}</main>\n\
         </body>\n</html>\n",
        escape(title)
    )
}

/// Returns a section with a heading; `content` must be HTML.
pub(super) fn section(title: &str, content: &str) -> String {
    format!(
        "<section>\n<h2>{}</h2>\n{content}</section>\n",
        escape(title)
    )
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    class: &'static str,
}

impl Cell {
    /// A cell with text, aligned to the left.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::with_class(text, "")
    }

    /// A cell with a number, aligned to the right.
    pub(super) fn number(text: impl Into<String>) -> Self {
        Self::with_class(text, "number")
    }

    pub(super) fn with_class(text: impl Into<String>, class: &'static str) -> Self {
        Self {
            text: text.into(),
            class,
        }
    }
}

/// Returns a table. The first cell of each row is its header. The header of a column of numbers is
/// aligned like the numbers.
pub(super) fn table(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut html = "<div class=\"scroll\"><table>\n".to_owned();
    let mut add = |text: String| write!(html, "{text}").expect("writing to memory cannot fail");
    if !header.is_empty() {
        let class = |column: usize| {
            let below = rows.first().and_then(|row| row.get(column));
            below.map_or("", |cell| cell.class)
        };
        add("<thead><tr>".to_owned());
        for (column, name) in header.iter().enumerate() {
            let class = attribute(if class(column) == "number" {
                "number"
            } else {
                ""
            });
            add(format!("<th scope=\"col\"{class}>{}</th>", escape(name)));
        }
        add("</tr></thead>\n".to_owned());
    }
    add("<tbody>\n".to_owned());
    for row in rows {
        add("<tr>".to_owned());
        for (column, cell) in row.iter().enumerate() {
            let (text, class) = (escape(&cell.text), attribute(cell.class));
            add(match column {
                0 => format!("<th scope=\"row\"{class}>{text}</th>"),
                _ => format!("<td{class}>{text}</td>"),
            });
        }
        add("</tr>\n".to_owned());
    }
    html + "</tbody>\n</table></div>\n"
}

fn attribute(class: &str) -> String {
    match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    }
}

/// Returns a collapsed section (`<details>`); `content` must be HTML.
pub(super) fn details(summary: &str, content: &str) -> String {
    format!(
        "<details>\n<summary>{}</summary>\n{content}</details>\n",
        escape(summary)
    )
}

/// Returns a list of paragraphs of one class.
pub(super) fn paragraphs(class: &str, texts: &[String]) -> String {
    let paragraph = |text: &String| format!("<p class=\"{class}\">{}</p>\n", escape(text));
    texts.iter().map(paragraph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_escaped() {
        assert_eq!(
            escape("<script>alert(\"a\" & 'b')</script>"),
            "&lt;script&gt;alert(&quot;a&quot; &amp; &#39;b&#39;)&lt;/script&gt;"
        );
        let html = table(&["<h>"], &[vec![Cell::text("<b>"), Cell::number("1 > 0")]]);
        assert!(html.contains("<th scope=\"row\">&lt;b&gt;</th>"), "{html}");
        assert!(
            html.contains("<td class=\"number\">1 &gt; 0</td>"),
            "{html}"
        );
        assert!(html.contains("<th scope=\"col\">&lt;h&gt;</th>"), "{html}");
    }

    #[test]
    fn a_page_has_no_external_resources() {
        let page = page("<title>", "");
        assert!(page.contains("<title>&lt;title&gt;</title>"), "{page}");
        for outside in ["src=", "href=", "url(", "<script", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
