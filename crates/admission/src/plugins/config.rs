//! The enabled admission plugins: the table of upstream's names, and the rules of
//! `--enable-admission-plugins` and `--disable-admission-plugins`.

use std::collections::BTreeSet;

/// The support of an upstream plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Support {
    /// The plugin runs.
    Full,
    /// Enabling the plugin has no effect, for this reason.
    NoEffect(&'static str),
    /// The plugin is not supported: enabling it is an error.
    None,
}

/// An admission plugin of upstream.
#[derive(Debug, Clone, Copy)]
struct Plugin {
    name: &'static str,
    /// True if the plugin runs by default.
    is_default: bool,
    support: Support,
}

const fn on(name: &'static str) -> Plugin {
    Plugin {
        name,
        is_default: true,
        support: Support::Full,
    }
}

const fn off(name: &'static str, support: Support) -> Plugin {
    Plugin {
        name,
        is_default: false,
        support,
    }
}

const fn on_without_effect(name: &'static str, why: &'static str) -> Plugin {
    Plugin {
        name,
        is_default: true,
        support: Support::NoEffect(why),
    }
}

const UNSERVED_POD_GROUPS: &str = "pod groups are not served";

/// Every plugin of kube-apiserver 1.36, in the order in which they run.
const PLUGINS: [Plugin; 41] = [
    off("AlwaysAdmit", Support::NoEffect("it admits everything")),
    off("NamespaceAutoProvision", Support::None),
    on("NamespaceLifecycle"),
    off("NamespaceExists", Support::None),
    off("LimitPodHardAntiAffinityTopology", Support::None),
    on("LimitRanger"),
    on("ServiceAccount"),
    off("NodeRestriction", Support::Full),
    on("TaintNodesByCondition"),
    off("AlwaysPullImages", Support::None),
    off("ImagePolicyWebhook", Support::None),
    on("PodSecurity"),
    off("PodNodeSelector", Support::None),
    on("Priority"),
    on("DefaultTolerationSeconds"),
    off("PodTolerationRestriction", Support::None),
    off("EventRateLimit", Support::None),
    off("ExtendedResourceToleration", Support::None),
    on("DefaultStorageClass"),
    on("StorageObjectInUseProtection"),
    on_without_effect("PodGroupProtection", UNSERVED_POD_GROUPS),
    off("OwnerReferencesPermissionEnforcement", Support::Full),
    on("PersistentVolumeClaimResize"),
    on("RuntimeClass"),
    on("CertificateApproval"),
    on("CertificateSigning"),
    on_without_effect(
        "ClusterTrustBundleAttest",
        "cluster trust bundles are not served",
    ),
    on("CertificateSubjectRestriction"),
    on("DefaultIngressClass"),
    off("DenyServiceExternalIPs", Support::None),
    on("PodTopologyLabels"),
    on_without_effect("PodGroupWorkloadExists", UNSERVED_POD_GROUPS),
    on_without_effect(
        "NodeDeclaredFeatureValidator",
        "updates of pods are not compared with the declared features of nodes",
    ),
    on_without_effect("JobValidation", "workloads are not served"),
    on("PodResizeValidator"),
    on("MutatingAdmissionPolicy"),
    on("MutatingAdmissionWebhook"),
    on("ValidatingAdmissionPolicy"),
    on("ValidatingAdmissionWebhook"),
    on("ResourceQuota"),
    off("AlwaysDeny", Support::None),
];

/// The admission plugins to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnabledPlugins {
    names: BTreeSet<&'static str>,
    /// The enabled plugins that have no effect although a flag names them, with the reason.
    without_effect: Vec<(&'static str, &'static str)>,
}

/// The flags name plugins that cannot be enabled or disabled like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlugins {
    /// No plugin has this name.
    #[error("plugin {name:?} is unknown: choose among {}", EnabledPlugins::supported().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The plugin exists upstream only.
    #[error(
        "plugin {name:?} is not supported: choose among {}",
        EnabledPlugins::supported().join(", ")
    )]
    Unsupported {
        /// The name.
        name: &'static str,
    },
    /// Both flags contain these names.
    #[error(
        "[{}] in enable-admission-plugins and disable-admission-plugins overlapped: name each in one \
         of the two",
        .names.join(" ")
    )]
    Overlap {
        /// The names.
        names: Vec<&'static str>,
    },
}

impl Default for EnabledPlugins {
    /// Upstream's default plugins.
    fn default() -> Self {
        let defaults = PLUGINS.iter().filter(|known| known.is_default);
        Self {
            names: defaults.map(|known| known.name).collect(),
            without_effect: Vec::new(),
        }
    }
}

impl EnabledPlugins {
    /// Returns the default plugins and those of `enable`, without those of `disable`. Both are lists of
    /// names, separated by commas.
    ///
    /// # Errors
    /// See [`InvalidPlugins`].
    pub fn parse(enable: &str, disable: &str) -> Result<Self, InvalidPlugins> {
        let (enable, disable) = (known(enable)?, known(disable)?);
        let both = |name: &&str| disable.iter().any(|known| known.name == *name);
        let names = enable.iter().map(|known| known.name);
        let names: BTreeSet<&'static str> = names.filter(both).collect();
        if !names.is_empty() {
            let names = names.into_iter().collect();
            return Err(InvalidPlugins::Overlap { names });
        }
        let mut plugins = Self::default();
        for known in disable {
            plugins.names.remove(known.name);
        }
        for known in enable {
            let name = known.name;
            match known.support {
                Support::None => return Err(InvalidPlugins::Unsupported { name }),
                Support::NoEffect(why) => plugins.without_effect.push((name, why)),
                Support::Full => {}
            }
            plugins.names.insert(name);
        }
        Ok(plugins)
    }

    /// Returns these plugins without the plugin `name`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.names.remove(name);
        self
    }

    /// Returns true if the plugin `name` is to run.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the plugins that a flag names and that have no effect, each with the reason.
    pub fn without_effect(&self) -> &[(&'static str, &'static str)] {
        &self.without_effect
    }

    /// Returns true if the plugin `name` is part of this server, whether it runs or not.
    pub(super) fn is_supported(name: &str) -> bool {
        let mut known = PLUGINS.iter();
        known.any(|known| known.name == name && known.support != Support::None)
    }

    /// Returns the names of the plugins that may be enabled, in the order in which they run.
    pub fn supported() -> Vec<&'static str> {
        let supported = PLUGINS
            .iter()
            .filter(|known| known.support != Support::None);
        supported.map(|known| known.name).collect()
    }

    /// Returns the names of all plugins, in the order in which they run.
    pub fn known() -> Vec<&'static str> {
        PLUGINS.iter().map(|known| known.name).collect()
    }
}

/// Returns the plugins in a list of names.
fn known(list: &str) -> Result<Vec<&'static Plugin>, InvalidPlugins> {
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    let known = names.map(|name| {
        let found = PLUGINS.iter().find(|known| known.name == name);
        found.ok_or_else(|| InvalidPlugins::Unknown {
            name: name.to_owned(),
        })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(enable: &str, disable: &str, changes: &[(&str, bool)]) {
        let plugins = EnabledPlugins::parse(enable, disable).unwrap();
        for name in EnabledPlugins::known() {
            let change = changes.iter().find(|(changed, _)| *changed == name);
            let expected = change.map_or(EnabledPlugins::default().has(name), |(_, has)| *has);
            assert_eq!(plugins.has(name), expected, "{enable} -{disable}: {name}");
        }
    }

    /// <https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/kubeapiserver/options/plugins.go>
    #[test]
    fn the_defaults_are_upstreams() {
        let plugins = EnabledPlugins::default();
        let known = EnabledPlugins::known();
        let mut off: Vec<_> = known.iter().filter(|name| !plugins.has(name)).collect();
        off.sort();
        assert_eq!(
            off,
            [
                &"AlwaysAdmit",
                &"AlwaysDeny",
                &"AlwaysPullImages",
                &"DenyServiceExternalIPs",
                &"EventRateLimit",
                &"ExtendedResourceToleration",
                &"ImagePolicyWebhook",
                &"LimitPodHardAntiAffinityTopology",
                &"NamespaceAutoProvision",
                &"NamespaceExists",
                &"NodeRestriction",
                &"OwnerReferencesPermissionEnforcement",
                &"PodNodeSelector",
                &"PodTolerationRestriction",
            ]
        );
    }

    #[test]
    fn flags_enable_and_disable_plugins() {
        let owners = "OwnerReferencesPermissionEnforcement";
        check("", "", &[]);
        check("Priority", "AlwaysDeny", &[]);
        check(owners, "", &[(owners, true)]);
        check(
            "",
            " ServiceAccount, Priority ,",
            &[("ServiceAccount", false), ("Priority", false)],
        );
    }

    #[test]
    fn enabling_a_plugin_without_effect_is_reported() {
        let plugins = EnabledPlugins::parse("AlwaysAdmit,Priority", "").unwrap();
        assert_eq!(
            plugins.without_effect(),
            [("AlwaysAdmit", "it admits everything")]
        );
    }

    #[test]
    fn unknown_plugin_names_are_rejected() {
        let refused = |enable, disable| {
            let error = EnabledPlugins::parse(enable, disable).unwrap_err();
            error.to_string()
        };
        for text in [refused("Foo", ""), refused("", "Priority,Foo")] {
            let expected =
                r#"plugin "Foo" is unknown: choose among AlwaysAdmit, NamespaceLifecycle"#;
            assert!(text.starts_with(expected), "{text}");
        }
        let text = refused("EventRateLimit", "");
        let expected = r#"plugin "EventRateLimit" is not supported: choose among AlwaysAdmit, "#;
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.matches("EventRateLimit").count(), 1, "{text}");
        assert_eq!(
            refused("Priority,PodSecurity", "PodSecurity,Priority"),
            "[PodSecurity Priority] in enable-admission-plugins and disable-admission-plugins \
             overlapped: name each in one of the two"
        );
    }
}
