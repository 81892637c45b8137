//! `bench get` and `bench list`: repeated reads. The responses are checked but not decoded, except
//! for one list at the start that counts the objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;

use super::args::{GetArgs, ListArgs, ListQueryArgs, ObjectArgs, ResponseArgs, SelectionArgs};
use super::client::{self, Call, ClientError, Connection, query_value};
use super::decode::{self, List, Object};
use super::encoding::{Content, Encoding, Wire};
use super::error::BenchError;
use super::items::Items;
use super::meter::Meter;
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
        let body = connection.call(Call::get(&path)).await?;
        let accept = connection.accept();
        let found = Object::read(accept, &body).map(Object::version);
        let is_it = memmem::find(&body, name.as_bytes()).is_some() && has_kind(accept, &body);
        match found {
            Ok(Some(_)) if is_it => Ok(body.len() as u64),
            _ => Err(ClientError::Response {
                problem: format!("it is not {name} in {}", accept.name()),
                path,
            }),
        }
    }
}

/// Returns true unless the encoding changes the kind of objects and the body has another one.
fn has_kind(accept: Encoding, body: &[u8]) -> bool {
    let Some(kind) = accept.kind(Content::Object) else {
        return true;
    };
    match accept.wire() {
        Wire::Json => memmem::find(body, format!(r#""kind":"{kind}""#).as_bytes()).is_some(),
        Wire::Protobuf => decode::kind_in_envelope(body) == Ok(kind.as_bytes()),
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
        rate: 0.0,
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
    let meter = Meter::new(&args.report, 0);
    requests::run(&mut report, target, volume, &meter, get).await?;
    Ok(report)
}

struct Lists {
    path: String,
    /// The number of objects in every response.
    items: u64,
    /// Whether a request continues until the last page.
    all_pages: bool,
    pages: AtomicU64,
}

impl RequestLoad for Lists {
    async fn send(&self, connection: &mut Connection, _: u32) -> Result<u64, ClientError> {
        let (mut bytes, mut items) = (0, 0);
        let mut path = self.path.clone();
        loop {
            let mut counter = Items::new(connection.accept());
            let next = if self.all_pages {
                let body = connection.call(Call::list(&path)).await?;
                counter.push(&body);
                bytes += body.len() as u64;
                let next = decode::next_page(connection.accept(), &body);
                next.map_err(|malformed| unexpected(&path, malformed))?
            } else {
                let list = Call::list(&path);
                bytes += connection.stream(list, |data| counter.push(data)).await?;
                String::new()
            };
            self.pages.fetch_add(1, Ordering::Relaxed);
            items += counter
                .count()
                .ok_or_else(|| unexpected(&path, "it is incomplete"))?;
            if next.is_empty() {
                break;
            }
            path = format!("{}&continue={}", self.path, query_value(&next));
        }
        if items == self.items {
            return Ok(bytes);
        }
        let problem = format!("it has {items} objects instead of {}", self.items);
        Err(unexpected(&path, problem))
    }
}

fn unexpected(path: &str, problem: impl ToString) -> ClientError {
    ClientError::Response {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

/// Checks that the arguments of `list` fit together.
///
/// # Errors
/// Pages have no size.
pub(super) fn check(query: &ListQueryArgs) -> Result<(), BenchError> {
    if query.all_pages && query.limit.is_none() {
        let problem = "--all-pages: also give the size of a page with --limit";
        return Err(BenchError::Usage(problem.to_owned()));
    }
    Ok(())
}

/// Runs `list`.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn list(args: ListArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let (query, ResponseArgs { accept }) = (args.query, args.responses);
    let limit = query.limit.map(|limit| ("limit", limit.to_string()));
    let path = path(&query.selection, limit.clone());
    // This list also warms up the server.
    let items = match query.all_pages {
        false => one_list(target, &path, accept).await?.items.len(),
        true => {
            let whole = self::path(&query.selection, None);
            one_list(target, &whole, accept).await?.items.len()
        }
    };
    let volume = Volume {
        requests: query.requests.get(),
        rate: 0.0,
        connections: query.connections.get(),
        accept,
    };
    let mut report = Report::default();
    report.text("load", "list");
    report.text("target", &target.url);
    report.text("path", &path);
    report.text("accept", accept.name());
    report.count("items", items as u64);
    let list = Arc::new(Lists {
        path,
        items: items as u64,
        all_pages: query.all_pages,
        pages: AtomicU64::new(0),
    });
    let meter = Meter::new(&args.report, 0);
    requests::run(&mut report, target, volume, &meter, Arc::clone(&list)).await?;
    report.count("pages", list.pages.load(Ordering::Relaxed));
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
    let body = connection.call(Call::list(path)).await?;
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
