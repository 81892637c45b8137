//! `bench get` and `bench list`: reads, again and again. The bytes of the answers are counted and not
//! looked at, but for one list that tells how many objects a list has.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use super::args::{AnswerArgs, Encoding, GetArgs, ListArgs, ObjectArgs, SelectionArgs};
use super::client::{self, ClientError, Connection, query_value};
use super::decode::{self, List};
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
        accept: args.answers.accept,
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

impl Ask for Lists {
    async fn ask(&self, connection: &mut Connection, _: u32) -> Result<u64, ClientError> {
        connection.measure(&self.path).await
    }
}

/// Runs `list`.
///
/// # Errors
/// The target does not let it begin.
pub(super) async fn list(args: ListArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let limit = args.query.limit.map(|limit| limit.to_string());
    let limit = limit.map(|limit| ("limit", limit));
    let path = path(&args.query.selection, limit);
    let AnswerArgs { accept } = args.answers;
    // It also makes the server have what it has to have for the next.
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

/// The path and query of what is selected, `more` of the query first.
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

/// One such list.
///
/// # Errors
/// It does not come, or is none.
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

/// As [`one_list`], over a connection that is open.
///
/// # Errors
/// As [`one_list`].
pub(super) async fn list_of(connection: &mut Connection, path: &str) -> Result<List, ClientError> {
    let body = connection.send(Method::GET, path, Bytes::new()).await?;
    let list = decode::list(connection.accept(), &body);
    list.map_err(|malformed| ClientError::Answer {
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
