//! `--authorization-mode`.

use crate::server::config::setting_value::{ConfigError, SettingValue};

/// An authorization mode, under kube-apiserver's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum AuthorizationMode {
    /// Every authenticated user may do everything.
    AlwaysAllow,
    /// Nothing is allowed.
    AlwaysDeny,
    /// The rules of nodes: what their pods need, and their own objects.
    Node,
    /// Roles and their bindings.
    Rbac,
}

impl AuthorizationMode {
    /// Returns the mode with kube-apiserver's name `name`.
    pub(in crate::server) fn of_name(name: &str) -> Option<Self> {
        match name {
            "AlwaysAllow" => Some(Self::AlwaysAllow),
            "AlwaysDeny" => Some(Self::AlwaysDeny),
            "Node" => Some(Self::Node),
            "RBAC" => Some(Self::Rbac),
            _ => None,
        }
    }
}

/// Parses the modes, which are asked in their order.
///
/// # Errors
/// A mode is unknown, is given twice, or there is none.
pub(in crate::server) fn authorization_modes(
    setting: &SettingValue,
) -> Result<Vec<AuthorizationMode>, ConfigError> {
    let mut modes = Vec::new();
    for name in setting.text.split(',').map(str::trim) {
        let mode = match (name, AuthorizationMode::of_name(name)) {
            (_, Some(mode)) => mode,
            ("Webhook" | "ABAC", None) => {
                return Err(setting.error(format_args!(
                    "the mode {name} is not supported: use Node, RBAC, AlwaysAllow or AlwaysDeny"
                )));
            }
            (_, None) => {
                return Err(setting.error(format_args!(
                    "{name:?} is not a mode: use Node, RBAC, AlwaysAllow or AlwaysDeny, separated by commas"
                )));
            }
        };
        if modes.contains(&mode) {
            return Err(setting.error(format_args!("has the mode {name} twice: remove one")));
        }
        modes.push(mode);
    }
    Ok(modes)
}
