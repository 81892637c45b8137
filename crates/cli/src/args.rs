//! Arguments that several commands have: the server, the namespace, and the objects.

use std::path::PathBuf;

use clap::Args;

use super::error::CliError;
use watchet_client::{ApiResource, Kubeconfig, RestClient, RestConfig};

/// The server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config, else the pod's service
    /// account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context to use [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ServerArgs {
    /// Returns a client of the server.
    pub(crate) fn connect(&self) -> Result<RestClient, CliError> {
        let context = self.context.as_deref();
        let mut config = match (&self.kubeconfig, context) {
            (Some(path), _) => {
                let kubeconfig = Kubeconfig::load(&[path]);
                let kubeconfig = kubeconfig.map_err(|error| CliError::Kubeconfig { error })?;
                RestConfig::from_kubeconfig(&kubeconfig, context)?
            }
            (None, Some(_)) => RestConfig::from_kubeconfig(&Kubeconfig::load_default()?, context)?,
            (None, None) => RestConfig::infer()?,
        };
        config.user_agent = concat!("watchet-cli/", env!("CARGO_PKG_VERSION")).to_owned();
        Ok(RestClient::new(&config)?)
    }
}

/// The namespaces.
#[derive(Debug, Clone, Args)]
pub(crate) struct NamespaceArgs {
    /// Namespace [default: the context's]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

/// A resource, and the name of an object if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub resource: &'a str,
    pub name: Option<&'a str>,
}

/// Splits `pods/web-0`, or `pods` and `web-0`.
pub(crate) fn named<'a>(resource: &'a str, name: Option<&'a str>) -> Result<Named<'a>, CliError> {
    let (resource, in_resource) = match resource.split_once('/') {
        Some((resource, name)) => (resource, Some(name)),
        None => (resource, None),
    };
    if in_resource.is_some() && name.is_some() {
        return Err(CliError::Value {
            argument: "<NAME>",
            problem: "give the name once, as RESOURCE/NAME or as RESOURCE NAME".to_owned(),
        });
    }
    Ok(Named {
        resource,
        name: in_resource.or(name),
    })
}

impl NamespaceArgs {
    /// Returns the namespace to read, or `None` for all.
    pub(crate) fn of<'a>(
        &'a self,
        client: &'a RestClient,
        resource: &ApiResource,
        name: Option<&str>,
    ) -> Result<Option<&'a str>, CliError> {
        // kubectl's message.
        if name.is_some() && self.all_namespaces {
            return Err(CliError::Value {
                argument: "--all-namespaces",
                problem: "a resource cannot be retrieved by name across all namespaces".to_owned(),
            });
        }
        if self.all_namespaces || !resource.namespaced {
            return Ok(None);
        }
        let namespace = self.namespace.as_deref();
        Ok(Some(namespace.unwrap_or(client.default_namespace())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let pods = |name| Named {
            resource: "pods",
            name,
        };
        assert_eq!(named("pods", None).unwrap(), pods(None));
        assert_eq!(named("pods/a", None).unwrap(), pods(Some("a")));
        assert_eq!(named("pods", Some("a")).unwrap(), pods(Some("a")));
        let twice = named("pods/a", Some("b")).unwrap_err();
        assert!(
            twice.to_string().starts_with("<NAME>: give the name once"),
            "{twice}"
        );
    }
}
