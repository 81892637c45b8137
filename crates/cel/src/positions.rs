//! The errors that contain the position of a name in the text of an expression.

/// Returns cel-go's error for the selection of a field that its operand does not have, with the position and the line of
/// the first selection of a field of this name.
pub fn undefined_field_error(text: &str, field: &str) -> String {
    let selected = format!(".{field}");
    let is_whole = |at: &usize| {
        let rest = &text[at + selected.len()..];
        !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut places = text.match_indices(&selected).map(|(at, _)| at);
    let at = places.find(is_whole).unwrap_or(0);
    let before = &text[..at];
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
