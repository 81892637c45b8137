//! `bench get` and `bench list`: reads, again and again. The bytes of the answers are counted and not
//! looked at, but for one list that tells how many objects a list has.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::args::{GetArgs, ListArgs, ListQueryArgs, ObjectArgs};
use super::client::{self, ClientError, Connection, query_value};
use super::objects;
use super::report::Report;
use super::requests::{self, Ask, Volume};
use super::run::BenchError;
use super::target::Target;
use crate::tasks::Tasks;

struct Get {
    objects: ObjectArgs,
    query: String,
}

impl Ask for Get {
    async fn ask(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        // Scattered, so that neighbours in time are none in memory; the factor is prime.
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
/// The target does not let it begin.
pub(super) async fn get(args: GetArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let query = match &args.resource_version {
        Some(version) => format!("?resourceVersion={}", query_value(version)),
        None => String::new(),
    };
    let volume = Volume {
        requests: args.requests.get(),
        connections: args.connections.get(),
    };
    let mut report = Report::default();
    report.text("load", "get");
    report.text("target", &target.url);
    report.text("resource", args.objects.resource.plural());
    report.text("query", &query);
    let objects = args.objects;
    let get = Arc::new(Get { objects, query });
    requests::run(&mut report, target, volume, args.report.pid, get).await?;
    Ok(report)
}

struct List {
    path: String,
}

impl Ask for List {
    async fn ask(&self, connection: &mut Connection, _: u32) -> Result<u64, ClientError> {
        connection.measure(&self.path).await
    }
}

/// Runs `list`.
///
/// # Errors
/// The target does not let it begin.
pub(super) async fn list(args: ListArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let path = list_path(&args.query);
    let items = count_items(target, &path).await?;
    let volume = Volume {
        requests: args.query.requests.get(),
        connections: args.query.connections.get(),
    };
    let mut report = Report::default();
    report.text("load", "list");
    report.text("target", &target.url);
    report.text("path", &path);
    report.count("items", items as u64);
    let list = Arc::new(List { path });
    requests::run(&mut report, target, volume, args.report.pid, list).await?;
    Ok(report)
}

fn list_path(query: &ListQueryArgs) -> String {
    let limit = query.limit.map(|limit| limit.to_string());
    let values = [
        ("resourceVersion", query.resource_version.as_deref()),
        ("limit", limit.as_deref()),
        ("labelSelector", query.label_selector.as_deref()),
        ("fieldSelector", query.field_selector.as_deref()),
    ];
    let mut path = objects::collection(query.resource, query.namespace.as_deref());
    let mut mark = '?';
    for (name, value) in values {
        if let Some(value) = value {
            path += &format!("{mark}{name}={}", query_value(value));
            mark = '&';
        }
    }
    path
}

/// How many objects one such list has. It also makes the server have what it has to have for the next.
async fn count_items(target: &Arc<Target>, path: &str) -> Result<usize, ClientError> {
    #[derive(Deserialize)]
    struct Items {
        items: Vec<IgnoredAny>,
    }
    let tasks = Tasks::new();
    let (mut connection, driver) = client::connect(target, &tasks).await?;
    let list = connection.send(Method::GET, path, Bytes::new());
    let list = driver.run(list).await?;
    tasks.cancel();
    let list: Items = serde_json::from_slice(&list).map_err(|error| ClientError::Answer {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    Ok(list.items.len())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        query: ListQueryArgs,
    }

    fn check(line: &str, expected: &str) {
        let line = Line::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(list_path(&line.query), expected);
    }

    #[test]
    fn flags_become_a_query() {
        check("list pods", "/api/v1/pods");
        check(
            "list configmaps --namespace a --resource-version 0",
            "/api/v1/namespaces/a/configmaps?resourceVersion=0",
        );
        check(
            "list pods --limit 500 --label-selector a=b --field-selector spec.nodeName=n",
            "/api/v1/pods?limit=500&labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn",
        );
    }
}
