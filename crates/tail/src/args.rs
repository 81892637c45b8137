//! The command line of `watchet tail`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(super) struct TailArgs {
    #[arg(
        value_name = "RESOURCE",
        help = "Resource or object to follow, as in kubectl: po, pods, deployments.apps, foos.v1.example.com, cm/settings"
    )]
    pub resource: String,
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config, else the pod's service
    /// account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context to use [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace [default: the context's]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Follow all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Label selector, e.g. app=web,tier!=db
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Field selector, e.g. spec.nodeName=node-1
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// Output format. wide: all changes in full, the version and the field manager; json: one
    /// object per line
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Option<Form>,
}

impl TailArgs {
    /// Returns the resource and, if given, the name of the object.
    pub(super) fn named(&self) -> (&str, Option<&str>) {
        match self.resource.split_once('/') {
            Some((resource, name)) => (resource, Some(name)),
            None => (&self.resource, None),
        }
    }

    /// Returns the field selector, including the name of the object.
    pub(super) fn fields(&self) -> Option<String> {
        let name = self.named().1.map(|name| format!("metadata.name={name}"));
        let selectors = [self.field_selector.clone(), name];
        let selectors: Vec<_> = selectors.into_iter().flatten().collect();
        (!selectors.is_empty()).then(|| selectors.join(","))
    }
}

/// The output format of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Form {
    /// Limited to what fits on a line
    #[default]
    #[value(skip)]
    Short,
    /// All changes in full
    Wide,
    /// One JSON object per line
    Json,
}
