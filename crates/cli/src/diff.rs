//! `watchet diff A B [RESOURCE]`: prints which objects differ between two states, and in which fields.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use jiff::Zoned;
use serde_json::{Value, json};

use super::args::{NamespaceArgs, ServerArgs, named};
use super::at::{Selection, items, list};
use super::error::CliError;
use super::moment::Moment;
use super::output::{self, Paint};
use super::redact::redact;
use super::{moment, revisions};
use crate::output_format::OutputFormat;
use watchet_client::{ApiResource, RestClient};
use watchet_tail::{FieldChange, between, escaped};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    #[arg(value_name = "A", help = format!("The earlier state: {}", moment::HELP))]
    from: String,
    /// The later state, as A
    #[arg(value_name = "B")]
    to: String,
    /// Resource or object, as in kubectl [default: all stored resources but events, in all namespaces]
    #[arg(value_name = "RESOURCE")]
    resource: Option<String>,
    /// Name of an object
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Label selector, e.g. app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Output format: json (one object per line)
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    output: Option<OutputFormat>,
    #[command(flatten)]
    server: ServerArgs,
}

/// How an object differs.
#[derive(Debug, Clone, PartialEq)]
enum Difference {
    Added,
    Removed,
    Changed(Vec<FieldChange>),
}

/// Runs the command. The exit code is that of diff: 0 without a difference, 1 with one.
pub(crate) async fn run(args: DiffArgs) -> Result<ExitCode, CliError> {
    let now = Zoned::now();
    let from = Moment::parse("<A>", &args.from, &now)?;
    let to = Moment::parse("<B>", &args.to, &now)?;
    let target = args.resource.as_deref();
    let target = target.map(|resource| named(resource, args.name.as_deref()));
    let target = target.transpose()?;
    let client = args.server.connect()?;
    let discovery = client.discover().await?;
    let name = target.as_ref().and_then(|target| target.name);
    let resources: Vec<(ApiResource, Option<&str>)> = match &target {
        Some(target) => {
            let resource = discovery.resolve(target.resource)?;
            let namespace = args.namespaces.of(&client, &resource, name)?;
            vec![(resource, namespace)]
        }
        None => all_resources(discovery.resources(), args.namespaces.namespace.as_deref()),
    };
    let from = revisions::resolve(&client, &from).await?;
    let to = revisions::resolve(&client, &to).await?;
    let (from, to) = (from.map(|at| at.revision), to.map(|at| at.revision));
    let paint = Paint::detect();
    let mut differs = false;
    for (resource, namespace) in resources {
        let selection = Selection {
            namespace,
            name,
            labels: args.selector.as_deref(),
            fields: None,
        };
        let states = states(
            &client,
            &resource,
            selection,
            from.as_deref(),
            to.as_deref(),
        )
        .await;
        let (old, new) = match states {
            // The user may be allowed to read some resources only.
            Err(CliError::Refused(error)) if target.is_none() => {
                output::note("diff", &format!("without {resource}: {error}"));
                continue;
            }
            states => states?,
        };
        let found = differences(old, new);
        let text = found.iter().map(|(key, difference)| {
            differs = true;
            match args.output {
                Some(OutputFormat::Json) => json_line(&resource, key, difference),
                None => text_of(&resource, key, difference, paint),
            }
        });
        let text: String = text.collect();
        output::print(&text)?;
    }
    Ok(ExitCode::from(u8::from(differs)))
}

/// Returns the resources to compare without an argument: each once, in its preferred version, without events.
fn all_resources<'a, 'b>(
    all: impl Iterator<Item = &'a ApiResource>,
    namespace: Option<&'b str>,
) -> Vec<(ApiResource, Option<&'b str>)> {
    let mut seen = std::collections::BTreeSet::new();
    // The objects of watchet.dev are not stored, so they have no past.
    let all = all.filter(|resource| resource.plural != "events" && resource.group != "watchet.dev");
    let all = all.filter(|resource| namespace.is_none() || resource.namespaced);
    all.filter(|resource| seen.insert((resource.group.clone(), resource.plural.clone())))
        .map(|resource| (resource.clone(), namespace))
        .collect()
}

async fn states(
    client: &RestClient,
    resource: &ApiResource,
    selection: Selection<'_>,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), CliError> {
    let old = list(client, resource, selection, from, "application/json").await?;
    let new = list(client, resource, selection, to, "application/json").await?;
    Ok((items(old, resource), items(new, resource)))
}

/// Returns the key of an object: `NAMESPACE/NAME`, or its name.
fn key_of(object: &Value) -> String {
    let member = |name| object["metadata"][name].as_str();
    let name = member("name").unwrap_or_default();
    match member("namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Returns the objects that differ, by their keys. An object that was deleted and created again has changed.
fn differences(old: Vec<Value>, new: Vec<Value>) -> BTreeMap<String, Difference> {
    let mut before: BTreeMap<String, Value> = old
        .into_iter()
        .map(|object| (key_of(&object), object))
        .collect();
    let mut differences = BTreeMap::new();
    for object in new {
        let key = key_of(&object);
        let Some(old) = before.remove(&key) else {
            differences.insert(key, Difference::Added);
            continue;
        };
        let mut changes = between(&old, &object);
        if !changes.is_empty() {
            redact(object["kind"].as_str().unwrap_or_default(), &mut changes);
            differences.insert(key, Difference::Changed(changes));
        }
    }
    let removed = before.into_keys().map(|key| (key, Difference::Removed));
    differences.extend(removed);
    differences
}

fn text_of(resource: &ApiResource, key: &str, difference: &Difference, paint: Paint) -> String {
    let (colour, sign) = match difference {
        Difference::Added => ("32", "+"),
        Difference::Removed => ("31", "-"),
        Difference::Changed(_) => ("33", "~"),
    };
    let mut text = format!(
        "{} {resource} {}\n",
        paint.paint(colour, sign),
        escaped(key)
    );
    if let Difference::Changed(changes) = difference {
        output::push_changes(&mut text, changes, paint);
    }
    text
}

/// Returns the changes as JSON.
pub(crate) fn changes_json(changes: &[FieldChange]) -> Vec<Value> {
    let field = |change: &FieldChange| {
        let mut field = json!({"path": change.path});
        for (name, value) in [("old", &change.old), ("new", &change.new)] {
            if let Some(value) = value {
                field[name] = value.clone();
            }
        }
        field
    };
    changes.iter().map(field).collect()
}

fn json_line(resource: &ApiResource, key: &str, difference: &Difference) -> String {
    let mut line = json!({"resource": resource.to_string(), "key": key});
    line["type"] = json!(match difference {
        Difference::Added => "added",
        Difference::Removed => "removed",
        Difference::Changed(_) => "changed",
    });
    if let Difference::Changed(changes) = difference {
        line["changes"] = json!(changes_json(changes));
    }
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_added_removed_or_changed() {
        let object = |name: &str, replicas: u32, version: &str| {
            json!({"kind": "Foo", "metadata": {"namespace": "n", "name": name, "resourceVersion": version,
                "managedFields": [{"manager": version}]}, "spec": {"replicas": replicas}})
        };
        let old = vec![
            object("a", 1, "1"),
            object("b", 1, "2"),
            object("c", 1, "3"),
        ];
        let new = vec![
            object("b", 2, "4"),
            object("c", 1, "5"),
            object("d", 1, "6"),
        ];
        let found = differences(old, new);
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["n/a", "n/b", "n/d"],
            "c has changed in metadata only"
        );
        assert_eq!(found["n/a"], Difference::Removed);
        assert_eq!(found["n/d"], Difference::Added);
        let resource = ApiResource::namespaced("ex.io", "v1", "foos", "Foo");
        let text = text_of(&resource, "n/b", &found["n/b"], Paint::detect());
        assert_eq!(text, "~ foos.v1.ex.io n/b\n    spec.replicas: 1 -> 2\n");
        let line = json_line(&resource, "n/b", &found["n/b"]);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            line["changes"],
            json!([{"path": "spec.replicas", "old": 1, "new": 2}])
        );
    }
}
