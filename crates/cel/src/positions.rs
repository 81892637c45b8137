//! Formats errors of cel-go that contain a position in the expression.

/// Returns cel-go's error for the selection of a field that its operand does not have. `operand` is its name, if it is a variable.
/// If the text has several such selections, the position is that of the first.
pub fn undefined_field_error(text: &str, operand: Option<&str>, field: &str) -> String {
    let selected = format!("{}.{field}", operand.unwrap_or_default());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_whole = |at: &usize| {
        let (before, rest) = (&text[..*at], &text[at + selected.len()..]);
        let starts = operand.is_none() || !before.ends_with(|c: char| is_name(c) || c == '.');
        starts && !rest.starts_with(is_name) && !is_in_text(before)
    };
    let mut places = text.match_indices(&selected).map(|(at, _)| at);
    let at = places.find(is_whole).unwrap_or(0);
    let before = &text[..at + operand.map_or(0, str::len)];
    let (line, column) = match before.rsplit_once('\n') {
        Some((lines, last)) => (lines.matches('\n').count() + 2, last.chars().count()),
        None => (1, before.chars().count()),
    };
    let shown = text.lines().nth(line - 1).unwrap_or_default();
    format!(
        "ERROR: <input>:{line}:{}: undefined field '{field}'\n | {shown}\n | {}^",
        column + 1,
        ".".repeat(column)
    )
}

/// Returns true if a string literal is open at the end of this part of an expression.
fn is_in_text(before: &str) -> bool {
    let mut quote = None;
    let mut characters = before.chars();
    while let Some(c) = characters.next() {
        match quote {
            None if matches!(c, '\'' | '"') => quote = Some(c),
            Some(_) if c == '\\' => drop(characters.next()),
            Some(open) if c == open => quote = None,
            _ => {}
        }
    }
    quote.is_some()
}
