//! The layers that set the flags: command line, environment, file and defaults. Values are texts with their
//! source; `server_config` parses them.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use crate::server::config::flags::{self, Flags, Spec};
use crate::server::config::setting_value::{Source, variable_of};

/// The environment variable of `--config`, which is not a setting: the file cannot name itself.
pub(in crate::server) const CONFIG_ENV: &str = "WATCHET_CONFIG";

/// The values of all layers. An empty value resets a setting to its default, whatever a weaker
/// layer has.
#[derive(Debug, Clone)]
pub(in crate::server) struct Settings {
    specs: Vec<Spec>,
    /// By the name of the flag.
    values: BTreeMap<String, (String, Source)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            specs: flags::specs(),
            values: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Returns the flags, in the order of the help.
    pub(in crate::server) fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// Adds a value of a flag, unless a stronger layer has set one. In one layer the last value counts.
    pub(in crate::server) fn give(&mut self, flag: &str, text: impl Into<String>, source: Source) {
        debug_assert!(self.specs.iter().any(|spec| spec.name == flag), "{flag}");
        let current = self.values.get(flag);
        if current.is_none_or(|(_, current)| *current <= source) {
            self.values.insert(flag.to_owned(), (text.into(), source));
        }
    }

    /// Adds the values of the environment; returns the variables that look like settings but are
    /// not.
    pub(in crate::server) fn give_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Vec<String> {
        let mut unknown = Vec::new();
        for (name, value) in variables.filter(|(name, _)| name.starts_with("WATCHET_")) {
            let mut flags = self.specs.iter().map(|spec| &spec.name);
            let flag = flags.find(|flag| variable_of(flag) == name);
            match flag.cloned() {
                Some(flag) => self.give(&flag, value, Source::Environment),
                None if name == CONFIG_ENV => {}
                None => unknown.push(name),
            }
        }
        unknown
    }

    /// Returns the flags with the value of the strongest layer, or the default.
    pub(in crate::server) fn flags(&self) -> Flags {
        let values = self.specs.iter().map(|spec| {
            let given = self.values.get(&spec.name);
            let (text, source) = match given.filter(|(text, _)| !text.is_empty()) {
                Some((text, source)) => (text, source),
                None => (&spec.default, &Source::Default),
            };
            let value = json!({"flag": spec.name, "text": text, "source": source});
            (spec.name.clone(), value)
        });
        let values: Map<_, _> = values.collect();
        serde_json::from_value(values.into()).expect("each field of Flags has a Spec of its name")
    }
}

#[cfg(test)]
impl Settings {
    /// Returns the value of a flag and its source.
    pub(in crate::server) fn value_of(&self, flag: &str) -> (String, Source) {
        let spec = self.specs.iter().find(|spec| spec.name == flag);
        let default = &spec.unwrap_or_else(|| panic!("{flag} is no flag")).default;
        let given = self.values.get(flag).filter(|(text, _)| !text.is_empty());
        given.cloned().unwrap_or((default.clone(), Source::Default))
    }

    /// Returns the text of a flag.
    pub(in crate::server) fn text_of(&self, flag: &str) -> String {
        self.value_of(flag).0
    }
}

#[cfg(test)]
mod tests;
