//! The selection of controllers by `--controllers`, with the rules of kube-controller-manager's
//! flag.

use std::collections::BTreeSet;

/// The names of a controller.
#[derive(Debug, Clone, Copy)]
struct ControllerNames {
    /// Upstream's current name.
    name: &'static str,
    /// Upstream's old name.
    alias: &'static str,
}

const fn names(name: &'static str, alias: &'static str) -> ControllerNames {
    ControllerNames { name, alias }
}

/// All controllers.
const CONTROLLERS: &[ControllerNames] = &[
    names(super::namespace::NAME, "namespace"),
    names(super::garbage::NAME, "garbagecollector"),
    names(super::per_namespace::SERVICE_ACCOUNT, "serviceaccount"),
    names(super::per_namespace::ROOT_CA, "root-ca-cert-publisher"),
    names(super::csr_signing::NAME, "csrsigning"),
    names(super::finished_jobs::NAME, "ttl-after-finished"),
    names(super::protection::CLAIMS, "pvc-protection"),
    names(super::protection::VOLUMES, "pv-protection"),
    // It has no other name.
    names(
        super::protection::ATTRIBUTES_CLASSES,
        super::protection::ATTRIBUTES_CLASSES,
    ),
    names(
        super::cluster_authentication::NAME,
        "cluster-authentication-trust",
    ),
    names(super::TOKEN_TRACKING, "legacy-token-tracking"),
    names(super::resource_quota::NAME, "resourcequota"),
];

/// The selected controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(BTreeSet<&'static str>);

/// A name in `--controllers` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a controller: choose among {} (`*` is all, `*,-NAME` all but NAME)", Selection::names().join(", "))]
pub struct UnknownController {
    name: String,
}

impl Default for Selection {
    /// Returns all controllers.
    fn default() -> Self {
        Self(CONTROLLERS.iter().map(|names| names.name).collect())
    }
}

impl Selection {
    /// Returns no controllers.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the controllers that kube-apiserver itself runs upstream.
    pub fn of_api_server() -> Self {
        Self(BTreeSet::from([super::cluster_authentication::NAME]))
    }

    /// Parses a comma-separated list: `foo` enables, `-foo` disables, `*` enables all that are not
    /// in the list. The first entry for a name counts.
    ///
    /// # Errors
    /// [`UnknownController`] for the first unknown name.
    pub fn parse(text: &str) -> Result<Self, UnknownController> {
        let mut named: Vec<(&'static str, bool)> = Vec::new();
        let mut others = false;
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            if word == "*" {
                others = true;
                continue;
            }
            let (name, runs) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let mut all = CONTROLLERS.iter();
            let names = all.find(|names| names.name == name || names.alias == name);
            let names = names.ok_or_else(|| UnknownController {
                name: name.to_owned(),
            })?;
            if named.iter().all(|(other, _)| *other != names.name) {
                named.push((names.name, runs));
            }
        }
        let runs = |name: &&'static str| {
            let said = named.iter().find(|(other, _)| other == name);
            said.map_or(others, |(_, runs)| *runs)
        };
        Ok(Self(
            CONTROLLERS
                .iter()
                .map(|names| names.name)
                .filter(runs)
                .collect(),
        ))
    }

    /// Returns whether the controller is selected.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Returns all names.
    pub fn names() -> Vec<&'static str> {
        CONTROLLERS.iter().map(|names| names.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "namespace-controller";

    #[test]
    fn names_stars_and_dashes() {
        let all = Selection::default();
        let without: BTreeSet<_> = all.0.iter().copied().filter(|n| *n != FIRST).collect();
        for (text, expect) in [
            ("*", all.0.clone()),
            ("", BTreeSet::new()),
            ("namespace", BTreeSet::from([FIRST])),
            (" namespace-controller , ", BTreeSet::from([FIRST])),
            ("*,-namespace", without.clone()),
            ("-namespace-controller,*", without),
            ("-namespace", BTreeSet::new()),
            ("-namespace,namespace,*", {
                let mut rest = all.0.clone();
                rest.remove(FIRST);
                rest
            }),
        ] {
            assert_eq!(Selection::parse(text).unwrap().0, expect, "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_all_names() {
        for text in ["*,-namespaces", "namespaces"] {
            let error = Selection::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("\"namespaces\" is not a controller"),
                "{error}"
            );
            assert!(error.contains(FIRST), "{error}");
        }
    }
}
