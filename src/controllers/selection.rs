//! Which controllers run: the table of their names and the rules of `--controllers`, which are those of
//! kube-controller-manager's flag of that name.

use std::collections::BTreeSet;

/// A controller, by the names that people give it.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Upstream's name of today.
    name: &'static str,
    /// Upstream's name of old.
    alias: &'static str,
}

const fn known(name: &'static str, alias: &'static str) -> Known {
    Known { name, alias }
}

/// Every controller that there is.
const KNOWN: &[Known] = &[
    known(super::namespace::NAME, "namespace"),
    known(super::garbage::NAME, "garbagecollector"),
    known(super::per_namespace::SERVICE_ACCOUNT, "serviceaccount"),
    known(super::per_namespace::ROOT_CA, "root-ca-cert-publisher"),
    known(super::csr_signing::NAME, "csrsigning"),
    known(super::finished_jobs::NAME, "ttl-after-finished"),
    known(super::protection::CLAIMS, "pvc-protection"),
    known(super::protection::VOLUMES, "pv-protection"),
    known(super::TOKEN_TRACKING, "legacy-token-tracking"),
    known(super::resource_quota::NAME, "resourcequota"),
];

/// The controllers that are to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(BTreeSet<&'static str>);

/// A name is not one of a controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no controller: choose among {} (`*` is all, `*,-NAME` all but NAME)", Selection::names().join(", "))]
pub struct UnknownController {
    name: String,
}

impl Default for Selection {
    /// All of them.
    fn default() -> Self {
        Self(KNOWN.iter().map(|known| known.name).collect())
    }
}

impl Selection {
    /// None of them.
    pub fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Reads a list of names, divided by commas: `foo` runs, `-foo` does not, and `*` are all that are
    /// not named. What is named first counts.
    ///
    /// # Errors
    /// [`UnknownController`] for the first name that none has.
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
            let mut all = KNOWN.iter();
            let known = all.find(|known| known.name == name || known.alias == name);
            let known = known.ok_or_else(|| UnknownController {
                name: name.to_owned(),
            })?;
            if named.iter().all(|(other, _)| *other != known.name) {
                named.push((known.name, runs));
            }
        }
        let runs = |name: &&'static str| {
            let said = named.iter().find(|(other, _)| other == name);
            said.map_or(others, |(_, runs)| *runs)
        };
        Ok(Self(
            KNOWN.iter().map(|known| known.name).filter(runs).collect(),
        ))
    }

    /// Whether the controller of this name is to run.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The names that there are.
    pub fn names() -> Vec<&'static str> {
        KNOWN.iter().map(|known| known.name).collect()
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
    fn a_wrong_name_is_told_with_those_that_there_are() {
        for text in ["*,-namespaces", "namespaces"] {
            let error = Selection::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("\"namespaces\" is no controller"),
                "{error}"
            );
            assert!(error.contains(FIRST), "{error}");
        }
    }
}
