//! Converts a definition to resources of the registry's table: one for each served version, in discovery order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::Printer;
use super::conversion_cache::ConversionCache;
use super::custom::Custom;
use super::definition::{Definition, Names, Version};
use super::schema::Compiler;
use super::versions::Versions;
use super::write_barrier::WriteBarrier;
use watchet_admission::client::WebhookClient;
use watchet_api::{ColumnSet, FieldColumn};
use watchet_registry::{Resource, Strategy, Subresource};
use watchet_schema::{KindType, Types};
use watchet_tasks::Tasks;

/// The verbs of custom resources.
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Returns the resources of a definition: its served versions, and the storage version, served or not.
pub(super) fn resources(
    definition: &Definition,
    versions: &Arc<Versions>,
    names: &Names,
    body_strategy: &Arc<dyn Strategy>,
) -> Vec<Arc<Resource>> {
    let spec = &definition.spec;
    let stored = definition.storage_version().map(|version| &version.name);
    let mut all = Vec::new();
    for (version, ordinal) in spec.versions.iter().zip(1..) {
        let stores = Some(&version.name) == stored;
        if version.served || stores {
            let custom = Custom {
                stores,
                ..custom(definition, versions, names, version, ordinal, body_strategy)
            };
            all.push(Arc::new(resource(definition, names, version, custom)));
        }
    }
    all
}

/// Compiles and returns the versions of a definition.
pub(super) fn versions(
    definition: &Definition,
    names: &Names,
    builtins: &Types,
    client: &WebhookClient,
    tasks: &Tasks,
    cache: &Arc<ConversionCache>,
) -> Versions {
    let mut compiler = Compiler::default();
    let (mut schemas, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for version in &definition.spec.versions {
        let text = version.schema.open_api.clone().unwrap_or_default();
        // One at a time, because the value of a large schema takes ten times the memory of its text.
        let open_api = text.parse();
        let types = Types::from_schema(&open_api, builtins);
        let kind = KindType::custom(Arc::new(types));
        kinds.insert(version.name.clone(), kind);
        let mut schema = compiler.version(&open_api);
        if definition.spec.preserve_unknown_fields {
            schema = schema.preserving_unknown_fields();
        }
        schemas.insert(version.name.clone(), Arc::new(schema));
    }
    Versions::new(definition, names, (schemas, kinds), client, tasks, cache)
}

fn resource(definition: &Definition, names: &Names, version: &Version, custom: Custom) -> Resource {
    let spec = &definition.spec;
    let mut subresources = Vec::new();
    if version.subresources.status.is_some() {
        subresources.push(Subresource::STATUS);
    }
    if version.subresources.scale.is_some() {
        subresources.push(Subresource::SCALE);
    }
    Resource {
        group: spec.group.clone(),
        version: version.name.clone(),
        kind: names.kind.clone(),
        plural: spec.names.plural.clone(),
        singular: names.singular.clone(),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        namespaced: spec.scope == "Namespaced",
        subresources,
        verbs: VERBS.map(str::to_owned).to_vec(),
        storage_prefix: definition.storage_prefix(),
        columns: Arc::new(columns(&spec.versions, version)),
        triggers: Vec::new(),
        strategy: Arc::new(custom),
    }
}

fn custom(
    definition: &Definition,
    versions: &Arc<Versions>,
    names: &Names,
    version: &Version,
    ordinal: u32,
    body_strategy: &Arc<dyn Strategy>,
) -> Custom {
    let group = &definition.spec.group;
    let (name, kind) = (&version.name, &names.kind);
    let mut stored = definition.status.stored_versions.iter();
    let deprecated = || format!("{group}/{name} {kind} is deprecated");
    let schema = version.schema.open_api.clone().unwrap_or_default();
    let of_version = versions.kind(&format!("{group}/{name}"));
    Custom {
        terminating: definition.is_terminating(),
        deprecation: version.deprecated.then(|| {
            let own = version.deprecation_warning.clone();
            own.unwrap_or_else(deprecated)
        }),
        scale: version.subresources.scale.clone(),
        printer: Printer::new(version),
        api_version: format!("{group}/{name}"),
        ordinal,
        served: version.served,
        stores: false,
        versions: versions.clone(),
        // Another server may be about to store another version, and its status may not list that version yet.
        converts: definition.spec.versions.len() > 1 || stored.any(|stored| stored != name),
        kind: of_version.expect("each version has a type").clone(),
        structure: versions.schema(name).cloned().unwrap_or_default(),
        schema,
        writes: WriteBarrier::default(),
        rules: Custom::rules(),
        body_strategy: body_strategy.clone(),
    }
}

/// Returns the selectable fields of all versions, because the versions share a cache. Fields that this version does not
/// have are without a label.
fn columns(versions: &[Version], own: &Version) -> ColumnSet {
    let labels = |version: &Version| -> Vec<String> {
        let paths = version.selectable_fields.iter();
        paths
            .map(|field| field.json_path.trim_start_matches('.').to_owned())
            .collect()
    };
    let selectable = labels(own);
    let mut all: Vec<String> = versions.iter().flat_map(labels).collect();
    all.sort_unstable();
    all.dedup();
    let column = |label: &String| {
        let mut column = FieldColumn::new(label);
        if !selectable.contains(label) {
            column.label = "".into();
        }
        column
    };
    ColumnSet::new(all.iter().map(column).collect())
}

/// Returns the resources of all definitions in the order of the table: by group, preferred versions first, and by name.
pub(super) fn ordered(mut resources: Vec<Arc<Resource>>) -> Vec<Arc<Resource>> {
    resources.sort_by(|a, b| {
        let version = || by_priority(&a.version, &b.version);
        let group = a.group.cmp(&b.group);
        group
            .then_with(version)
            .then_with(|| a.plural.cmp(&b.plural))
    });
    resources
}

/// Compares versions as Kubernetes prefers them: `v2`, `v1`, `v2beta1`, `v1alpha2`, and then other texts.
fn by_priority(a: &str, b: &str) -> Ordering {
    match (Rank::of(a), Rank::of(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The stability of a version, its major number and its minor number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u8, u64, u64);

impl Rank {
    fn of(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major = number(&rest[..end])?;
        let (stability, minor) = match &rest[end..] {
            "" => return Some(Self(2, major, 0)),
            rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (1, minor),
                (_, Some(minor)) => (0, minor),
                _ => return None,
            },
        };
        Some(Self(stability, major, number(minor)?))
    }
}

/// Parses a number without leading zeros.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| !text.starts_with(['0', '+']))
}

/// Returns the names of built-in resources in a group.
pub(super) fn names_of(builtins: &[Arc<Resource>], group: &str) -> Vec<Names> {
    let of_group = builtins.iter().filter(|resource| resource.group == group);
    of_group
        .map(|resource| Names {
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            kind: resource.kind.clone(),
            list_kind: format!("{}List", resource.kind),
            short_names: resource.short_names.clone(),
            categories: Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_admission::client::ServiceResolver;
    use watchet_registry::Plain;

    #[derive(Debug)]
    struct NoServices;

    #[async_trait::async_trait]
    impl ServiceResolver for NoServices {
        async fn resolve(&self, _: &str, name: &str, _: u16) -> Result<(String, u16), String> {
            Err(format!("service {name:?} not found"))
        }
    }

    #[test]
    fn versions_are_ordered_as_in_kubernetes() {
        let mut versions = [
            "foo1",
            "v1alpha1",
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "foo10",
            "v12alpha1",
            "v11alpha2",
            "v0",
        ];
        versions.sort_by(|a, b| by_priority(a, b));
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "v1alpha1",
            "foo1",
            "foo10",
            "v0",
        ];
        assert_eq!(versions, expected);
    }

    #[test]
    fn versions_share_columns_but_not_labels() {
        let definition: Definition = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "foos.e.com"},
            "spec": {"group": "e.com", "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                        "selectableFields": [{"jsonPath": ".spec.color"}]},
                    {"name": "v2", "served": true,
                        "selectableFields": [{"jsonPath": ".spec.alpha"}, {"jsonPath": ".spec.color"}]},
                    {"name": "v3"},
                ]},
        }))
        .unwrap();
        let (tasks, names) = (Tasks::new(), &definition.spec.names);
        let client = WebhookClient::new(&tasks, Arc::new(NoServices));
        let versions = Arc::new(versions(
            &definition,
            names,
            &Types::builtins(),
            &client,
            &tasks,
            &Arc::default(),
        ));
        let all = resources(&definition, &versions, names, &(Arc::new(Plain) as _));
        let [v1, v2] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(v1.storage_prefix, "e.com/foos");
        assert_eq!(
            v1.columns.resolve("spec.color"),
            v2.columns.resolve("spec.color")
        );
        assert!(v1.columns.resolve("spec.alpha").is_err());
        assert!(v1.columns.resolve("").is_err());
        assert!(v2.columns.resolve("spec.alpha").is_ok());
    }
}
