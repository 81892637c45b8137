//! The selection of controllers by `--controllers`, with the rules of kube-controller-manager's
//! flag.

use std::collections::BTreeSet;

use crate::cluster_authentication::ClusterAuthentication;
use crate::csr_signing::CsrSigning;
use crate::finished_jobs::FinishedJobs;
use crate::framework::Controller;
use crate::garbage::GarbageCollector;
use crate::namespace::NamespaceController;
use crate::per_namespace::{RootCa, ServiceAccounts};
use crate::protection::{AttributesClasses, Claims, Volumes};
use crate::rbac::ClusterRoleAggregation;
use crate::resource_quota::ResourceQuotas;

/// The creation of the config map of legacy token tracking, which upstream's kube-apiserver does.
/// It is selected like a controller and runs once, when the system namespaces exist.
pub const TOKEN_TRACKING: &str = "legacy-token-tracking-controller";

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
    names(NamespaceController::NAME, "namespace"),
    names(GarbageCollector::NAME, "garbagecollector"),
    names(ServiceAccounts::NAME, "serviceaccount"),
    names(RootCa::NAME, "root-ca-cert-publisher"),
    names(CsrSigning::NAME, "csrsigning"),
    names(FinishedJobs::NAME, "ttl-after-finished"),
    names(Claims::NAME, "pvc-protection"),
    names(Volumes::NAME, "pv-protection"),
    // It has no old name.
    names(AttributesClasses::NAME, AttributesClasses::NAME),
    names(ClusterRoleAggregation::NAME, "clusterrole-aggregation"),
    names(ClusterAuthentication::NAME, "cluster-authentication-trust"),
    names(TOKEN_TRACKING, "legacy-token-tracking"),
    names(ResourceQuotas::NAME, "resourcequota"),
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
        Self(BTreeSet::from([ClusterAuthentication::NAME]))
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
            let entry = named.iter().find(|(other, _)| other == name);
            entry.map_or(others, |(_, runs)| *runs)
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
    pub fn has(&self, name: &str) -> bool {
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
