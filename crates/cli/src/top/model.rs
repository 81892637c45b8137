//! The state of the terminal view, and what each key does to it. It reads no terminal and no server.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use serde_json::Value;

use super::columns::View;

/// What the keys act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// Selecting and sorting.
    List,
    /// Typing a filter.
    Filter,
    /// Deciding whether to end this watch.
    Confirm(String),
    /// Reading the help.
    Help,
}

/// What the program does after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Draws the view again.
    Draw,
    /// Ends this watch.
    End(String),
    /// Ends the program.
    Quit,
}

/// The state.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub view: View,
    pub mode: Mode,
    /// The column of each view by which its rows are sorted.
    sort: [usize; 2],
    /// Whether the order of each view is the opposite of the column's own.
    reversed: [bool; 2],
    pub filter: String,
    /// The name of the selected row: it remains selected when rows move.
    pub selected: Option<String>,
    /// The objects of the view.
    objects: Vec<Value>,
    /// The result of the last action, or an error.
    pub message: String,
    /// Why the objects may be old: the error of the last request for them.
    pub disconnected: Option<String>,
}

impl Model {
    /// Creates the state of `view`, sorted by the column `sort` if it is given.
    pub(super) fn new(view: View, sort: Option<usize>) -> Self {
        let mut model = Self {
            view,
            mode: Mode::List,
            sort: [View::Watchers, View::Caches].map(View::default_sort),
            reversed: [false; 2],
            filter: String::new(),
            selected: None,
            objects: Vec::new(),
            message: String::new(),
            disconnected: None,
        };
        if let Some(sort) = sort {
            model.sort[view as usize] = sort;
        }
        model
    }

    /// Returns the index of the column by which the rows are sorted.
    pub(super) fn sorted_by(&self) -> usize {
        self.sort[self.view as usize]
    }

    /// Returns true if the largest value comes first.
    pub(super) fn is_descending(&self) -> bool {
        let column = &self.view.columns()[self.sorted_by()];
        column.is_descending() != self.reversed[self.view as usize]
    }

    /// Replaces the objects.
    pub(super) fn set_objects(&mut self, objects: Vec<Value>) {
        self.objects = objects;
    }

    /// Returns the number of objects, without the filter.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the rows that contain the filter, sorted.
    pub(super) fn rows(&self, now: Timestamp) -> Vec<&Value> {
        let filter = self.filter.to_lowercase();
        let columns = self.view.columns();
        let matches = |object: &&Value| {
            let mut texts = columns.iter().map(|column| column.text(object, now));
            filter.is_empty() || texts.any(|text| text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&Value> = self.objects.iter().filter(matches).collect();
        let (column, descending) = (&columns[self.sorted_by()], self.is_descending());
        rows.sort_by(|one, other| {
            let order = column.compare(one, other, now);
            let order = match descending {
                true => order.reverse(),
                false => order,
            };
            order.then_with(|| name(one).cmp(name(other)))
        });
        rows
    }

    /// Returns the index of the selected row; the first if it is gone.
    pub(super) fn selected_index(&self, rows: &[&Value]) -> usize {
        let selected = self.selected.as_deref();
        let index = rows.iter().position(|row| Some(name(row)) == selected);
        index.unwrap_or(0)
    }

    /// Handles a key. `page` is the number of rows on the screen.
    pub(super) fn key(&mut self, key: KeyEvent, now: Timestamp, page: usize) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        match self.mode.clone() {
            Mode::List => return self.list_key(key.code, now, page),
            Mode::Filter => match key.code {
                KeyCode::Enter => self.mode = Mode::List,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.mode = Mode::List;
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(typed) => self.filter.push(typed),
                _ => {}
            },
            Mode::Confirm(watcher) => {
                self.mode = Mode::List;
                if key.code == KeyCode::Char('y') {
                    return Action::End(watcher);
                }
                self.message = format!("{watcher} was not ended");
            }
            Mode::Help => self.mode = Mode::List,
        }
        Action::Draw
    }

    fn list_key(&mut self, code: KeyCode, now: Timestamp, page: usize) -> Action {
        self.message.clear();
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab | KeyCode::Char('c') => {
                self.view = match self.view {
                    View::Watchers => View::Caches,
                    View::Caches => View::Watchers,
                };
                self.objects.clear();
                self.selected = None;
            }
            KeyCode::Char('<') | KeyCode::Left => self.sort_by_next(self.view.columns().len() - 1),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by_next(1),
            KeyCode::Char('R') => {
                let reversed = &mut self.reversed[self.view as usize];
                *reversed = !*reversed;
            }
            KeyCode::Char('j') | KeyCode::Down => self.select(1, now),
            KeyCode::Char('k') | KeyCode::Up => self.select(-1, now),
            KeyCode::PageDown => self.select(page as isize, now),
            KeyCode::PageUp => self.select(-(page as isize), now),
            KeyCode::Char('g') | KeyCode::Home => self.select(isize::MIN, now),
            KeyCode::Char('G') | KeyCode::End => self.select(isize::MAX, now),
            KeyCode::Char('d') if self.view == View::Watchers => {
                let rows = self.rows(now);
                let row = rows.get(self.selected_index(&rows));
                if let Some(watcher) = row.map(|row| name(row).to_owned()) {
                    self.mode = Mode::Confirm(watcher);
                }
            }
            KeyCode::Char('d') => "only watches can be ended".clone_into(&mut self.message),
            _ => {}
        }
        Action::Draw
    }

    fn sort_by_next(&mut self, steps: usize) {
        let columns = self.view.columns().len();
        let sort = &mut self.sort[self.view as usize];
        *sort = (*sort + steps) % columns;
        self.reversed[self.view as usize] = false;
    }

    /// Selects the row that is `steps` below the selected one.
    fn select(&mut self, steps: isize, now: Timestamp) {
        let rows = self.rows(now);
        let last = rows.len().saturating_sub(1);
        let index = self.selected_index(&rows);
        let index = index.saturating_add_signed(steps).min(last);
        self.selected = rows.get(index).map(|row| name(row).to_owned());
    }
}

/// Returns the name of an object.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn watcher(name: &str, user: &str, events: u64) -> Value {
        json!({"metadata": {"name": name}, "spec": {"user": user, "resource": "pods"},
            "status": {"sentEvents": events}})
    }

    fn model() -> Model {
        let mut model = Model::new(View::Watchers, None);
        model.set_objects(vec![
            watcher("w-1", "alice", 5),
            watcher("w-2", "bob", 100),
            watcher("w-3", "carol", 20),
        ]);
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model
            .rows(Timestamp::UNIX_EPOCH)
            .into_iter()
            .map(name)
            .collect()
    }

    fn press(model: &mut Model, code: KeyCode) -> Action {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        model.key(key, Timestamp::UNIX_EPOCH, 10)
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_keys_choose() {
        let mut model = model();
        assert_eq!(
            names(&model),
            ["w-2", "w-3", "w-1"],
            "by events, the most first"
        );
        press(&mut model, KeyCode::Char('R'));
        assert_eq!(names(&model), ["w-1", "w-3", "w-2"]);
        model = Model {
            sort: [0, 0],
            ..model
        };
        press(&mut model, KeyCode::Char('>'));
        assert_eq!(model.view.columns()[model.sorted_by()].title, "USER");
        assert_eq!(names(&model), ["w-1", "w-2", "w-3"]);
        press(&mut model, KeyCode::Char('<'));
        press(&mut model, KeyCode::Char('<'));
        assert_eq!(model.view.columns()[model.sorted_by()].title, "USER-AGENT");
    }

    #[test]
    fn a_filter_and_a_selection_follow_the_rows() {
        let mut model = model();
        press(&mut model, KeyCode::Char('j'));
        assert_eq!(model.selected.as_deref(), Some("w-3"));
        // The rows change their order; the same one is selected.
        model.set_objects(vec![
            watcher("w-1", "alice", 500),
            watcher("w-3", "carol", 20),
        ]);
        let rows = model.rows(Timestamp::UNIX_EPOCH);
        assert_eq!(model.selected_index(&rows), 1);
        press(&mut model, KeyCode::Char('/'));
        for typed in "ALI".chars() {
            press(&mut model, KeyCode::Char(typed));
        }
        press(&mut model, KeyCode::Enter);
        assert_eq!(names(&model), ["w-1"]);
        press(&mut model, KeyCode::Esc);
        assert_eq!(names(&model).len(), 2);
    }

    #[test]
    fn a_watch_ends_only_after_a_confirmation() {
        let mut model = model();
        press(&mut model, KeyCode::Char('d'));
        assert_eq!(model.mode, Mode::Confirm("w-2".to_owned()));
        assert_eq!(press(&mut model, KeyCode::Char('n')), Action::Draw);
        assert_eq!(model.message, "w-2 was not ended");
        press(&mut model, KeyCode::Char('d'));
        assert_eq!(
            press(&mut model, KeyCode::Char('y')),
            Action::End("w-2".to_owned())
        );
        press(&mut model, KeyCode::Tab);
        assert_eq!(press(&mut model, KeyCode::Char('d')), Action::Draw);
        assert_eq!(model.mode, Mode::List, "a cache cannot be ended");
        assert_eq!(press(&mut model, KeyCode::Char('q')), Action::Quit);
    }
}
