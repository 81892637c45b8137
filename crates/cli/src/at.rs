//! `watchet at MOMENT get RESOURCE`: prints objects as they were.

use clap::{Args, ValueEnum};
use jiff::Zoned;
use serde_json::{Value, json};

use super::args::{NamespaceArgs, ServerArgs, named};
use super::error::CliError;
use super::moment::Moment;
use super::revisions::{self, TimedRevision};
use super::table::{self, Format, Table};
use super::{moment, output};
use watchet_client::{ApiResource, RestClient};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct AtArgs {
    #[arg(value_name = "MOMENT", help = format!("When: {}", moment::HELP))]
    moment: String,
    /// Verb: get
    #[arg(value_name = "VERB", value_parser = ["get"], hide_possible_values = true)]
    verb: String,
    /// Resource or object, as in kubectl: po, deployments.apps, cm/settings
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Name of an object
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    namespaces: NamespaceArgs,
    /// Label selector, e.g. app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Field selector, e.g. spec.nodeName=node-1
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// Output format: wide, yaml, json or name
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    output: Option<Form>,
    /// Print managedFields too, with -o yaml and json
    #[arg(long)]
    show_managed_fields: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// All columns
    Wide,
    /// The objects in YAML
    Yaml,
    /// The objects in JSON
    Json,
    /// The names
    Name,
}

/// Selects the objects of a list.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Selection<'a> {
    pub namespace: Option<&'a str>,
    pub name: Option<&'a str>,
    pub labels: Option<&'a str>,
    pub fields: Option<&'a str>,
}

/// Lists objects at exactly `revision`, or the latest state.
pub(crate) async fn list(
    client: &RestClient,
    resource: &ApiResource,
    selection: Selection<'_>,
    revision: Option<&str>,
    accept: &'static str,
) -> Result<Value, CliError> {
    let name = selection.name.map(|name| format!("metadata.name={name}"));
    let fields = [selection.fields.map(str::to_owned), name];
    let fields: Vec<String> = fields.into_iter().flatten().collect();
    let fields = fields.join(",");
    let mut query = Vec::new();
    if !fields.is_empty() {
        query.push(("fieldSelector", fields.as_str()));
    }
    query.extend(selection.labels.map(|labels| ("labelSelector", labels)));
    if let Some(revision) = revision {
        query.push(("resourceVersion", revision));
        query.push(("resourceVersionMatch", "Exact"));
    }
    let path = resource.url_path(selection.namespace);
    let body = match client.get_document(&path, &query, accept).await {
        Ok(body) => body,
        Err(error) => {
            return Err(revisions::explain(client, revision.unwrap_or("0"), error).await);
        }
    };
    serde_json::from_slice(&body).map_err(|error| CliError::Response(error.to_string()))
}

/// Returns the objects of a list, with their kinds.
pub(crate) fn items(list: Value, resource: &ApiResource) -> Vec<Value> {
    let Value::Object(mut list) = list else {
        return Vec::new();
    };
    let Some(Value::Array(mut items)) = list.remove("items") else {
        return Vec::new();
    };
    for item in &mut items {
        item["apiVersion"] = json!(resource.api_version());
        item["kind"] = json!(resource.kind);
    }
    items
}

/// Runs the command.
pub(crate) async fn run(args: AtArgs) -> Result<(), CliError> {
    let moment = Moment::parse("<MOMENT>", &args.moment, &Zoned::now())?;
    let target = named(&args.resource, args.name.as_deref())?;
    let client = args.server.connect()?;
    let resource = client.discover().await?.resolve(target.resource)?;
    let namespace = args.namespaces.of(&client, &resource, target.name)?;
    let at = revisions::resolve(&client, &moment).await?;
    let revision = at.as_ref().map(|at| at.revision.as_str());
    let selection = Selection {
        namespace,
        name: target.name,
        labels: args.selector.as_deref(),
        fields: args.field_selector.as_deref(),
    };
    let is_table = matches!(args.output, None | Some(Form::Wide));
    let accept = match is_table {
        true => table::ACCEPT,
        false => "application/json",
    };
    let list = list(&client, &resource, selection, revision, accept).await?;
    if let Some(at) = &at {
        output::note("at", &describe(at));
    }
    let missing = || {
        let state = revision.map_or_else(String::new, |at| format!(" at resourceVersion {at}"));
        let name = target.name.unwrap_or_default();
        CliError::Missing(format!("{resource} {name:?} does not exist{state}"))
    };
    if is_table {
        let table: Table = serde_json::from_value(list)
            .map_err(|error| CliError::Response(format!("it is not a Table: {error}")))?;
        return match table.len() {
            0 if target.name.is_some() => Err(missing()),
            0 => {
                output::note("at", &format!("no {resource} existed"));
                Ok(())
            }
            _ => output::print(&table.text(Format {
                wide: args.output == Some(Form::Wide),
                with_namespace: args.namespaces.all_namespaces && resource.namespaced,
                at: at.and_then(|at| at.time),
            })),
        };
    }
    let mut items = items(list, &resource);
    if target.name.is_some() && items.is_empty() {
        return Err(missing());
    }
    if !args.show_managed_fields {
        for item in &mut items {
            if let Some(metadata) = item["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
        }
    }
    if args.output == Some(Form::Name) {
        let name = |item: &Value| {
            item["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let lines = items
            .iter()
            .map(|item| format!("{resource}/{}\n", name(item)));
        return output::print(&lines.collect::<String>());
    }
    let document = match (target.name, items.len()) {
        (Some(_), 1) => items.remove(0),
        _ => {
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
        }
    };
    let text = match args.output {
        Some(Form::Yaml) => serde_saphyr::to_string(&document)
            .map_err(|error| CliError::Response(error.to_string()))?,
        _ => format!("{document:#}\n"),
    };
    output::print(&text)
}

fn describe(at: &TimedRevision) -> String {
    match at.time {
        Some(time) => format!(
            "the state at resourceVersion {}, of {}",
            at.revision,
            revisions::local(time)
        ),
        None => format!("the state at resourceVersion {}", at.revision),
    }
}
