//! `bench get` and `bench list`: repeated reads. The bytes of the responses are counted but not
//! decoded, except for one list at the start that counts the objects.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use super::args::{Encoding, GetArgs, ListArgs, ObjectArgs, ResponseArgs, SelectionArgs};
use super::client::{self, ClientError, Connection, query_value};
use super::decode::{self, List};
use super::error::BenchError;
use super::objects;
use super::report::Report;
use super::requests::{self, RequestLoad, Volume};
use super::target::Target;
use watchet_tasks::Tasks;

struct Get {
    objects: ObjectArgs,
    query: String,
}

impl RequestLoad for Get {
    async fn send(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        // Scattered, so that consecutive requests do not access neighbouring memory; the factor is
        // prime.
        let object =
            (u64::from(number) * 2_654_435_761 % u64::from(self.objects.count.get())) as u32;
        let namespace = self.objects.namespace_of(object);
        let collection = objects::collection(self.objects.resource, Some(&namespace));
        let name = self.objects.name(object);
        let path = format!("{collection}/{name}{}", self.query);
        connection.measure(&path).await
    }
}

/// Runs `get`.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn get(args: GetArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let query = match &args.resource_version {
        Some(version) => format!("?resourceVersion={}", query_value(version)),
        None => String::new(),
    };
    let volume = Volume {
        requests: args.requests.get(),
        connections: args.connections.get(),
        accept: args.responses.accept,
    };
    let mut report = Report::default();
    report.text("load", "get");
    report.text("target", &target.url);
    report.text("resource", args.objects.resource.plural());
    report.text("query", &query);
    report.text("accept", volume.accept.name());
    let objects = args.objects;
    let get = Arc::new(Get { objects, query });
    requests::run(&mut report, target, volume, args.report.pid, get).await?;
    Ok(report)
}

struct Lists {
    path: String,
}

impl RequestLoad for Lists {
    async fn send(&self, connection: &mut Connection, _: u32) -> Result<u64, ClientError> {
        connection.measure(&self.path).await
    }
}

/// Runs `list`.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn list(args: ListArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let limit = args.query.limit.map(|limit| limit.to_string());
    let limit = limit.map(|limit| ("limit", limit));
    let path = path(&args.query.selection, limit);
    let ResponseArgs { accept } = args.responses;
    // This list also warms up the server.
    let items = one_list(target, &path, accept).await?.items.len();
    let volume = Volume {
        requests: args.query.requests.get(),
        connections: args.query.connections.get(),
        accept,
    };
    let mut report = Report::default();
    report.text("load", "list");
    report.text("target", &target.url);
    report.text("path", &path);
    report.text("accept", accept.name());
    report.count("items", items as u64);
    let list = Arc::new(Lists { path });
    requests::run(&mut report, target, volume, args.report.pid, list).await?;
    Ok(report)
}

/// Returns the path and query of the selection, with the parameters `more` first.
pub(super) fn path(
    selection: &SelectionArgs,
    more: impl IntoIterator<Item = (&'static str, String)>,
) -> String {
    let selected = [
        ("resourceVersion", &selection.resource_version),
        ("labelSelector", &selection.label_selector),
        ("fieldSelector", &selection.field_selector),
    ];
    let selected = selected.into_iter();
    let selected = selected.filter_map(|(name, value)| Some((name, value.clone()?)));
    let mut path = objects::collection(selection.resource, selection.namespace.as_deref());
    for (number, (name, value)) in more.into_iter().chain(selected).enumerate() {
        let mark = if number == 0 { '?' } else { '&' };
        path += &format!("{mark}{name}={}", query_value(&value));
    }
    path
}

/// Lists the selection over a new connection.
///
/// # Errors
/// The request fails, or the response is not a list.
pub(super) async fn one_list(
    target: &Arc<Target>,
    path: &str,
    accept: Encoding,
) -> Result<List, ClientError> {
    let tasks = Tasks::new();
    let (connection, driver) = client::connect(target, &tasks).await?;
    let mut connection = connection.accepting(accept);
    let list = driver.run(list_of(&mut connection, path)).await;
    tasks.cancel();
    list
}

/// As [`one_list`], over an open connection.
///
/// # Errors
/// As [`one_list`].
pub(super) async fn list_of(connection: &mut Connection, path: &str) -> Result<List, ClientError> {
    let body = connection.send(Method::GET, path, Bytes::new()).await?;
    let list = decode::list(connection.accept(), &body);
    list.map_err(|malformed| ClientError::Response {
        path: path.to_owned(),
        problem: malformed.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        selection: SelectionArgs,
    }

    fn check(line: &str, more: Option<(&'static str, String)>, expected: &str) {
        let line = Line::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(path(&line.selection, more), expected);
    }

    #[test]
    fn flags_become_a_query() {
        check("list pods", None, "/api/v1/pods");
        check(
            "list configmaps --namespace a --resource-version 0",
            None,
            "/api/v1/namespaces/a/configmaps?resourceVersion=0",
        );
        check(
            "list pods --label-selector a=b --field-selector spec.nodeName=n",
            Some(("limit", "500".to_owned())),
            "/api/v1/pods?limit=500&labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn",
        );
    }
}
