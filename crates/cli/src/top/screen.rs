//! Formats the state as the lines of a screen.

use jiff::Timestamp;
use serde_json::Value;

use super::columns::View;
use super::model::{Mode, Model};

const HELP: &[&str] = &[
    "Keys",
    "",
    "  j k, arrows      select the next or the previous row",
    "  PgDn PgUp g G    select a row a page further, the first, the last",
    "  < >, arrows      sort by the column on the left or on the right",
    "  R                reverse the order",
    "  Tab, c           show the watch caches, or the watchers",
    "  /                filter the rows by a text; Esc clears the filter",
    "  d                end the selected watch, after a confirmation",
    "  ? h              this help",
    "  q, Ctrl-C        quit",
    "",
    "Press any key to continue.",
];

/// The size of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub width: usize,
    pub height: usize,
}

impl Size {
    /// Returns the number of rows of the table: a title, the head and a footer take a line each.
    pub(super) fn page(self) -> usize {
        self.height.saturating_sub(3).max(1)
    }
}

/// A line and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub text: String,
    pub style: Style,
}

/// How a line is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    /// The selected row.
    Inverse,
}

/// Returns the lines of the screen, at most as many as it has, none longer than its width.
pub(super) fn lines(model: &Model, server: &str, size: Size, now: Timestamp) -> Vec<Line> {
    let mut lines = Vec::with_capacity(size.height);
    let mut push = |text: &str, style| {
        let text: String = text.chars().take(size.width).collect();
        lines.push(Line { text, style });
    };
    if model.mode == Mode::Help {
        HELP.iter().for_each(|text| push(text, Style::Plain));
        lines.truncate(size.height);
        return lines;
    }
    let rows = model.rows(now);
    push(&title(model, server, rows.len()), Style::Bold);
    let mut table = table(model, &rows, now).into_iter();
    push(&table.next().unwrap_or_default(), Style::Bold);
    let selected = model.selected_index(&rows);
    // The selected row is always on the screen.
    let first = (selected + 1).saturating_sub(size.page());
    for (index, row) in table.enumerate().skip(first).take(size.page()) {
        let style = match index == selected {
            true => Style::Inverse,
            false => Style::Plain,
        };
        push(&row, style);
    }
    for _ in rows.len().saturating_sub(first)..size.page() {
        push("", Style::Plain);
    }
    push(&footer(model), Style::Bold);
    lines
}

/// Returns the table as text, without a limit of its width.
pub(super) fn text(model: &Model, now: Timestamp) -> String {
    let rows = model.rows(now);
    let lines = table(model, &rows, now).into_iter();
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

fn title(model: &Model, server: &str, shown: usize) -> String {
    let what = match model.view {
        View::Watchers => "watchers",
        View::Caches => "watch caches",
    };
    let all = model.len();
    let filter = match model.filter.is_empty() {
        true => String::new(),
        false => format!(", {shown} with {:?}", watchet_tail::escaped(&model.filter)),
    };
    let disconnected = match &model.disconnected {
        Some(error) => format!(", disconnected: {}", watchet_tail::escaped(error)),
        None => String::new(),
    };
    format!("watchet top: {all} {what}{filter} of {server}{disconnected}")
}

fn footer(model: &Model) -> String {
    match &model.mode {
        Mode::Filter => format!("filter: {}_", watchet_tail::escaped(&model.filter)),
        Mode::Confirm(watcher) => format!(
            "End the watch {}? Its client may open it again. y: end it, any other key: do not",
            watchet_tail::escaped(watcher)
        ),
        _ if !model.message.is_empty() => watchet_tail::escaped(&model.message),
        _ => "q quit  j/k select  </> sort  R reverse  Tab caches  / filter  d end  ? help"
            .to_owned(),
    }
}

/// Returns the head and a line per row. The column that sorts has a mark.
fn table(model: &Model, rows: &[&Value], now: Timestamp) -> Vec<String> {
    let columns = model.view.columns();
    let mut cells: Vec<Vec<String>> = Vec::with_capacity(rows.len() + 1);
    let mark = match model.is_descending() {
        true => "v",
        false => "^",
    };
    let titles =
        columns
            .iter()
            .enumerate()
            .map(|(index, column)| match index == model.sorted_by() {
                true => format!("{}{mark}", column.title),
                false => column.title.to_owned(),
            });
    cells.push(titles.collect());
    for row in rows {
        cells.push(columns.iter().map(|column| column.text(row, now)).collect());
    }
    let width = |index: usize| {
        let widths = cells.iter().map(|line| line[index].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let mut text = String::new();
        for ((cell, width), column) in cells.iter().zip(&widths).zip(columns) {
            match column.is_number() {
                true => text.push_str(&format!("{cell:>width$}  ")),
                false => text.push_str(&format!("{cell:<width$}  ")),
            }
        }
        text
    };
    cells.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model(count: usize) -> Model {
        let mut model = Model::new(View::Watchers, View::Watchers.column("name"));
        let watcher = |number: usize| {
            json!({"metadata": {"name": format!("w-{number:02}"), "creationTimestamp": "2026-11-27T10:00:00Z"},
                "spec": {"user": "alice\u{1b}[2J", "resource": "deployments", "group": "apps"},
                "status": {"phase": "Live", "sentEvents": number, "sentBytes": 2048,
                    "lag": {"events": 1, "bytes": 3, "since": "2026-11-27T10:04:57Z"}}})
        };
        model.set_objects((0..count).map(watcher).collect());
        model
    }

    fn now() -> Timestamp {
        "2026-11-27T10:05:00Z".parse().unwrap()
    }

    #[test]
    fn values_are_formatted_and_escaped() {
        let text = text(&model(1), now());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NAME^  USER"), "{text}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        let expected = [
            "w-00",
            r"alice\u{1b}[2J",
            "deployments.apps",
            "(all)",
            "Live",
            "1",
            "3",
            "3s",
            "0",
            "2.0",
            "KiB",
            "5m",
            "-",
            "-",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn the_selected_row_is_on_the_screen() {
        let mut model = model(50);
        let size = Size {
            width: 40,
            height: 10,
        };
        model.selected = Some("w-30".to_owned());
        let lines = lines(&model, "https://s", size, now());
        assert_eq!(lines.len(), 10);
        assert!(lines.iter().all(|line| line.text.chars().count() <= 40));
        assert!(
            lines[0]
                .text
                .starts_with("watchet top: 50 watchers of https://s"),
            "{lines:?}"
        );
        let inverse: Vec<&Line> = lines.iter().filter(|l| l.style == Style::Inverse).collect();
        assert_eq!(inverse.len(), 1);
        assert!(inverse[0].text.starts_with("w-30 "), "{inverse:?}");
        assert!(lines[2].text.starts_with("w-24 "), "{lines:?}");
        model.mode = Mode::Confirm("w-30".to_owned());
        let last = super::lines(&model, "s", size, now()).pop().unwrap();
        assert!(last.text.starts_with("End the watch w-30?"), "{last:?}");
    }
}
