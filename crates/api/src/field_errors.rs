//! `FieldErrors`: the invalid fields of a configuration file, with upstream's messages.

use std::fmt::Display;

/// Collects the invalid fields of a configuration.
///
/// ```
/// use watchet_api::FieldErrors;
///
/// let mut errors = FieldErrors::default();
/// errors.required("authorizers[0].name", "");
/// errors.not_supported("authorizers[0].type", "Magic", &["RBAC", "Webhook"]);
/// assert_eq!(
///     errors.into_result().unwrap_err(),
///     r#"[authorizers[0].name: Required value, authorizers[0].type: Unsupported value: "Magic": supported values: "RBAC", "Webhook"]"#
/// );
/// ```
#[derive(Debug, Default)]
pub struct FieldErrors(Vec<String>);

impl FieldErrors {
    /// Adds a field without a value.
    pub fn required(&mut self, path: impl Display, detail: &str) {
        self.0.push(match detail {
            "" => format!("{path}: Required value"),
            _ => format!("{path}: Required value: {detail}"),
        });
    }

    /// Adds a field with an invalid value.
    pub fn invalid(&mut self, path: impl Display, value: &str, detail: impl Display) {
        self.0
            .push(format!("{path}: Invalid value: {value:?}: {detail}"));
    }

    /// Adds a field whose value occurred before.
    pub fn duplicate(&mut self, path: impl Display, value: &str) {
        self.0.push(format!("{path}: Duplicate value: {value:?}"));
    }

    /// Adds a field whose value is none of `supported`.
    pub fn not_supported(&mut self, path: impl Display, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let supported = supported.join(", ");
        self.0.push(format!(
            "{path}: Unsupported value: {value:?}: supported values: {supported}"
        ));
    }

    /// Adds a list with more than `max` items.
    pub fn too_many(&mut self, path: impl Display, count: usize, max: usize) {
        self.0.push(format!(
            "{path}: Too many: {count}: must have at most {max} items"
        ));
    }

    /// Adds an error that is not about one field.
    pub fn other(&mut self, error: impl Display) {
        self.0.push(error.to_string());
    }

    /// Returns true if there are no errors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether all fields are valid.
    ///
    /// # Errors
    /// All errors in their order; several are in brackets.
    pub fn into_result(mut self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(format!("[{}]", self.0.join(", "))),
        }
    }
}
