//! The resources of a server, and their resolution by name as in kubectl: `po`, `pods`, `Pod`,
//! `deploy.apps`, `deployments.v1.apps`. A snapshot, not a cache.

use futures_util::future::join_all;
use serde::Deserialize;

use super::resource_client::null_is_none;
use super::{ApiResource, Call, Path, RestClient, RestError};

/// The Accept header of aggregated discovery (KEP-3352); the second version is for servers before
/// 1.30.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The maximum number of suggestions for an unknown name.
const NEAR_MAX: usize = 5;

/// The minimum similarity (Jaro-Winkler) of a suggestion.
const NEAR_MIN: f64 = 0.8;

/// The resources of a server, in the server's order of preference.
///
/// ```no_run
/// use watchet_client::{ApiResource, Kubeconfig, RestClient, RestConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let kubeconfig = Kubeconfig::load(&["kubeconfig"])?;
/// let client = RestClient::new(&RestConfig::from_kubeconfig(&kubeconfig, None)?)?;
/// let discovery = client.discover().await?;
/// let deployments = ApiResource::namespaced("apps", "v1", "deployments", "Deployment");
/// for name in ["deploy", "Deployment", "deployments.apps", "deployments.v1.apps"] {
///     assert_eq!(discovery.resolve(name)?, deployments);
/// }
/// let error = discovery.resolve("deployment.app").unwrap_err();
/// assert!(error.near.contains(&"deployments.apps".to_string()), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    known: Vec<NamedResource>,
}

/// A resource with its names.
#[derive(Debug, Clone)]
struct NamedResource {
    resource: ApiResource,
    singular: String,
    short: Vec<String>,
    /// Whether it supports list and watch.
    is_watchable: bool,
}

/// The server has no such resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server doesn't have a resource type {name:?}{}", hint(near))]
pub struct UnknownResource {
    /// The unknown name.
    pub name: String,
    /// Similar names, the most similar first.
    pub near: Vec<String>,
}

fn hint(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(": did you mean {}?", near.join(", ")),
    }
}

impl Discovery {
    /// Resolves `name`: a plural, singular or short name or a kind, case-insensitive, optionally
    /// with its group (`foos.example.com`) or version and group (`foos.v1.example.com`).
    ///
    /// # Errors
    /// No resource has this name.
    pub fn resolve(&self, name: &str) -> Result<ApiResource, UnknownResource> {
        let name_lower = name.to_lowercase();
        let (word, rest) = name_lower.split_once('.').unwrap_or((&name_lower, ""));
        let in_group = |known: &NamedResource| {
            let ApiResource { group, version, .. } = &known.resource;
            rest.is_empty()
                || rest == group
                || rest == version && group.is_empty()
                || rest.split_once('.') == Some((version, group))
        };
        // Names take precedence over short names of any group, as in kubectl.
        let named = |known: &&NamedResource| {
            let ApiResource { plural, kind, .. } = &known.resource;
            word == plural || word == known.singular || word == kind.to_lowercase()
        };
        let short = |known: &&NamedResource| known.short.iter().any(|short| short == word);
        let candidates = || self.known.iter().filter(|known| in_group(known));
        let found = candidates()
            .find(named)
            .or_else(|| candidates().find(short));
        match found {
            Some(known) => Ok(known.resource.clone()),
            None => Err(UnknownResource {
                near: self.near(&name_lower),
                name: name.to_owned(),
            }),
        }
    }

    /// Returns all resources that support list and watch.
    pub fn resources(&self) -> impl Iterator<Item = &ApiResource> {
        let is_watchable = self.known.iter().filter(|known| known.is_watchable);
        is_watchable.map(|known| &known.resource)
    }

    /// Returns the names most similar to `name`, in resolvable form.
    fn near(&self, name_lower: &str) -> Vec<String> {
        let mut near: Vec<(f64, String)> = Vec::new();
        for known in self.known.iter().filter(|known| known.is_watchable) {
            let ApiResource { plural, group, .. } = &known.resource;
            let full = match group.as_str() {
                "" => plural.clone(),
                group => format!("{plural}.{group}"),
            };
            let names = [plural, &known.singular, &full]
                .into_iter()
                .chain(&known.short);
            let alike = names.map(|name| strsim::jaro_winkler(name_lower, name));
            let alike = alike.fold(0.0, f64::max);
            if alike >= NEAR_MIN && !near.iter().any(|(_, name)| *name == full) {
                near.push((alike, full));
            }
        }
        near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        near.into_iter()
            .take(NEAR_MAX)
            .map(|(_, name)| name)
            .collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct DiscoveryDocument {
    kind: String,
    /// The items of an `APIGroupDiscoveryList`.
    items: Vec<AggregatedGroup>,
    /// The versions of an `APIVersions`.
    versions: Vec<String>,
    /// The groups of an `APIGroupList`.
    #[serde(deserialize_with = "null_is_none")]
    groups: Vec<Group>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatedGroup {
    metadata: Name,
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AggregatedVersion {
    version: String,
    resources: Vec<AggregatedResource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AggregatedResource {
    resource: String,
    response_kind: Option<Kind>,
    scope: String,
    singular_resource: String,
    verbs: Vec<String>,
    short_names: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Group {
    name: String,
    versions: Vec<GroupVersion>,
    preferred_version: GroupVersion,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupVersion {
    version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceList {
    #[serde(deserialize_with = "null_is_none")]
    resources: Vec<Resource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    name: String,
    singular_name: String,
    namespaced: bool,
    kind: String,
    verbs: Vec<String>,
    short_names: Vec<String>,
}

impl RestClient {
    /// Discovers the server's resources.
    ///
    /// # Errors
    /// A request fails.
    pub async fn discover(&self) -> Result<Discovery, RestError> {
        discover(self).await
    }
}

/// Discovers the resources of a server.
///
/// # Errors
/// A request fails.
async fn discover(client: &RestClient) -> Result<Discovery, RestError> {
    let mut known = Vec::new();
    for root in ["/api", "/apis"] {
        let path = Path::new(root);
        let call = Call {
            accept: AGGREGATED,
            ..Call::get(&path)
        };
        let answer: DiscoveryDocument = client.fetch_json(call).await?;
        if answer.kind == "APIGroupDiscoveryList" {
            known.extend(answer.items.into_iter().flat_map(AggregatedGroup::known));
            continue;
        }
        // A server before 1.27 has one document per version of a group.
        let mut versions: Vec<(String, String)> = Vec::new();
        versions.extend(answer.versions.into_iter().map(|v| (String::new(), v)));
        versions.extend(answer.groups.into_iter().flat_map(Group::versions));
        let lists = versions.iter().map(|gv| one_version(client, root, gv));
        for (list, gv) in join_all(lists).await.into_iter().zip(&versions) {
            match list {
                Ok(list) => known.extend(list.resources.into_iter().filter_map(|r| r.known(gv))),
                // An aggregated API server that is unavailable does not affect the other groups.
                Err(error) => {
                    tracing::warn!(group = gv.0, version = gv.1, %error, "discovery of a group failed")
                }
            }
        }
    }
    Ok(Discovery { known })
}

async fn one_version(
    client: &RestClient,
    root: &str,
    (group, version): &(String, String),
) -> Result<ResourceList, RestError> {
    let path = match group.as_str() {
        "" => Path::new(root),
        group => Path::new(root).segment(group),
    };
    client.fetch_json(Call::get(&path.segment(version))).await
}

fn is_watchable(verbs: &[String]) -> bool {
    let has = |verb: &str| verbs.iter().any(|known| known == verb);
    has("list") && has("watch")
}

impl AggregatedGroup {
    fn known(self) -> impl Iterator<Item = NamedResource> {
        let group = self.metadata.name;
        self.versions.into_iter().flat_map(move |version| {
            let group = group.clone();
            version
                .resources
                .into_iter()
                .map(move |found| NamedResource {
                    resource: ApiResource {
                        group: group.clone(),
                        version: version.version.clone(),
                        plural: found.resource,
                        kind: found.response_kind.unwrap_or_default().kind,
                        namespaced: found.scope == "Namespaced",
                    },
                    singular: found.singular_resource,
                    short: found.short_names,
                    is_watchable: is_watchable(&found.verbs),
                })
        })
    }
}

impl Group {
    /// Returns the versions, the preferred one first.
    fn versions(self) -> Vec<(String, String)> {
        let mut versions: Vec<String> = self.versions.into_iter().map(|v| v.version).collect();
        versions.sort_by_key(|version| *version != self.preferred_version.version);
        versions
            .into_iter()
            .map(|version| (self.name.clone(), version))
            .collect()
    }
}

impl Resource {
    /// Returns the resource; `None` for a subresource.
    fn known(self, (group, version): &(String, String)) -> Option<NamedResource> {
        (!self.name.contains('/')).then(|| NamedResource {
            is_watchable: is_watchable(&self.verbs),
            singular: match self.singular_name.as_str() {
                "" => self.kind.to_lowercase(),
                name => name.to_owned(),
            },
            resource: ApiResource {
                group: group.clone(),
                version: version.clone(),
                plural: self.name,
                kind: self.kind,
                namespaced: self.namespaced,
            },
            short: self.short_names,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(resource: ApiResource, singular: &str, short: &[&str]) -> NamedResource {
        NamedResource {
            resource,
            singular: singular.into(),
            short: short.iter().map(|name| (*name).to_owned()).collect(),
            is_watchable: true,
        }
    }

    fn discovery() -> Discovery {
        let namespaced = ApiResource::namespaced;
        Discovery {
            known: vec![
                known(namespaced("", "v1", "pods", "Pod"), "pod", &["po"]),
                known(namespaced("", "v1", "events", "Event"), "event", &["ev"]),
                known(
                    namespaced("apps", "v1", "deployments", "Deployment"),
                    "deployment",
                    &["deploy"],
                ),
                known(
                    namespaced("events.k8s.io", "v1", "events", "Event"),
                    "event",
                    &["ev"],
                ),
                known(namespaced("ex.io", "v2", "foos", "Foo"), "foo", &["pod"]),
                known(namespaced("ex.io", "v1", "foos", "Foo"), "foo", &[]),
            ],
        }
    }

    #[test]
    fn names_resolve_as_in_kubectl() {
        for (name, expected) in [
            ("po", "pods"),
            ("Pod", "pods"),
            ("pods.v1", "pods"),
            // A name takes precedence over another resource's short name.
            ("pod", "pods"),
            ("ev", "events"),
            ("events.events.k8s.io", "events.v1.events.k8s.io"),
            ("deploy.apps", "deployments.v1.apps"),
            ("deployments.v1.apps", "deployments.v1.apps"),
            ("foo", "foos.v2.ex.io"),
            ("foos.v1.ex.io", "foos.v1.ex.io"),
        ] {
            let found = discovery().resolve(name).map(|found| found.to_string());
            assert_eq!(found.as_deref(), Ok(expected), "{name}");
        }
    }

    #[test]
    fn similar_names_are_suggested() {
        let error = discovery().resolve("deploments").unwrap_err();
        assert_eq!(error.near, ["deployments.apps"]);
        assert_eq!(
            error.to_string(),
            r#"the server doesn't have a resource type "deploments": did you mean deployments.apps?"#
        );
        assert_eq!(discovery().resolve("podz").unwrap_err().near[0], "pods");
        let far = discovery().resolve("xyzzy").unwrap_err();
        assert_eq!(
            far.to_string(),
            r#"the server doesn't have a resource type "xyzzy""#
        );
        assert!(discovery().resolve("pods.apps").is_err());
        assert!(discovery().resolve("").is_err());
    }
}
