//! `bench write`: one kind of write repeatedly, on a few objects in turn. Each response must have
//! the content of its request and a newer version, and a list at the end must have exactly the
//! objects as they were written last.

mod objects;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use self::objects::{ObjectStates, Objects};
use super::args::{Encoding, WriteArgs, WriteVerb};
use super::client::{self, Call, ClientError, Connection};
use super::decode::Object;
use super::error::BenchError;
use super::mark::{MARK, Mark};
use super::meter::Meter;
use super::read::list_of;
use super::report::Report;
use super::requests::{self, RequestLoad, Volume};
use super::target::Target;
use watchet_tasks::Tasks;

/// The connections that create the objects of a run before it begins.
const PREPARING_CONNECTIONS: usize = 8;

/// The writes of a run.
struct Writes {
    objects: Objects,
    verb: WriteVerb,
    run: u32,
    states: ObjectStates,
}

/// Runs the load.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn run(args: WriteArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let (load, accept) = (&args.load, args.responses.accept);
    let requests = load.requests.get();
    let writes = Arc::new(Writes {
        objects: Objects::new(load, accept),
        verb: load.verb,
        run: fastrand::u32(..),
        states: ObjectStates::new(match load.verb {
            WriteVerb::Create | WriteVerb::Delete => requests,
            _ => load.objects.get(),
        }),
    });
    prepare(&writes, target).await?;
    let mut report = Report::default();
    report.text("load", "write");
    report.text("target", &target.url);
    report.text("resource", load.resource.plural());
    report.text("verb", load.verb.name());
    report.text("accept", accept.name());
    report.count("size_bytes", load.size as u64);
    let volume = Volume {
        requests,
        rate: load.rate,
        connections: load.connections.get(),
        accept,
    };
    let meter = Meter::new(&args.report, 0);
    requests::run(&mut report, target, volume, &meter, Arc::clone(&writes)).await?;
    verify(&mut report, &writes, target).await;
    Ok(report)
}

/// Compares the objects with what was written, and deletes them.
async fn verify(report: &mut Report, writes: &Writes, target: &Arc<Target>) {
    let tasks = Tasks::new();
    let listed = client::with_connection(target, &tasks, async |connection| {
        let list = list_of(connection, &writes.objects.list_path()).await?;
        writes.objects.clear(connection).await?;
        Ok(list)
    });
    let listed = listed.await;
    tasks.cancel();
    let list = match listed {
        Ok(list) => list,
        Err(error) => {
            let fault = format!("the objects could not be checked: {error}");
            report.faults.push(fault);
            return;
        }
    };
    let found: Vec<_> = list
        .items
        .iter()
        .map(|item| (item.version, item.mark))
        .collect();
    let deviating = deviating(&writes.expected().await, &found);
    report.count("objects_deviating", deviating);
    report.fault(deviating, "objects are not as they were written last");
}

/// Returns how many objects are in one of the lists but not in both.
fn deviating(expected: &[(u64, Option<Mark>)], found: &[(u64, Option<Mark>)]) -> u64 {
    let missing = expected.iter().filter(|object| !found.contains(object));
    let unexpected = found.iter().filter(|object| !expected.contains(object));
    missing.count().max(unexpected.count()) as u64
}

/// Checks that the arguments fit together.
///
/// # Errors
/// The servers do not support the verb or the encoding.
pub(super) fn check(args: &WriteArgs) -> Result<(), BenchError> {
    let (load, accept) = (&args.load, args.responses.accept);
    let (resource, verb) = (load.resource, load.verb);
    let usage = |problem: String| Err(BenchError::Usage(problem));
    if resource.is_custom() && verb == WriteVerb::StrategicPatch {
        return usage(format!(
            "--verb {}: servers do not support it for custom resources such as {}",
            verb.name(),
            resource.plural()
        ));
    }
    let is_deletion = matches!(verb, WriteVerb::Delete | WriteVerb::Deletecollection);
    if is_deletion && !matches!(accept, Encoding::Json | Encoding::Protobuf) {
        return usage(format!(
            "--accept {}: the response to --verb {} is a Status, in json or protobuf",
            accept.name(),
            verb.name()
        ));
    }
    Ok(())
}

/// Deletes the objects of earlier runs, and creates those that the run changes or deletes.
async fn prepare(writes: &Arc<Writes>, target: &Arc<Target>) -> Result<(), BenchError> {
    let tasks = Tasks::new();
    let namespaces = client::with_connection(target, &tasks, async |connection| {
        writes.objects.prepare_namespaces(connection).await
    });
    let namespaces = namespaces.await;
    tasks.cancel();
    namespaces?;
    let count = match writes.verb {
        WriteVerb::Create => return Ok(()),
        WriteVerb::Deletecollection => writes.objects.namespaces * writes.objects.count,
        _ => writes.states.len(),
    };
    let volume = Volume {
        requests: count,
        rate: 0.0,
        connections: PREPARING_CONNECTIONS.min(count as usize),
        accept: Encoding::Json,
    };
    let mut report = Report::default();
    let prepare = Arc::new(Prepare(Arc::clone(writes)));
    requests::run(&mut report, target, volume, &Meter::none(), prepare).await?;
    match report.faults.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Setup(report.faults.join("; "))),
    }
}

/// The creation of the objects before the run.
struct Prepare(Arc<Writes>);

impl RequestLoad for Prepare {
    async fn send(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        let Self(writes) = self;
        match writes.verb {
            WriteVerb::Deletecollection => {
                let (namespace, object) = (
                    number % writes.objects.namespaces,
                    number / writes.objects.namespaces,
                );
                let path = writes.objects.collection(namespace);
                let body = writes.objects.body(namespace, object, None, None);
                connection.send(Method::POST, &path, body).await?;
                Ok(0)
            }
            _ => writes.create(connection, number, None).await,
        }
    }
}

impl RequestLoad for Writes {
    async fn send(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        let object = number % self.states.len();
        match self.verb {
            WriteVerb::Create => self.create(connection, object, Some(number)).await,
            WriteVerb::Delete => self.delete(connection, object).await,
            WriteVerb::Deletecollection => {
                let path = self.objects.delete_path(number);
                let body = connection.send(Method::DELETE, &path, Bytes::new()).await?;
                Ok(body.len() as u64)
            }
            _ => self.change(connection, object, number).await,
        }
    }
}

impl Writes {
    /// Returns the versions and marks that a list must have after the run.
    async fn expected(&self) -> Vec<(u64, Option<Mark>)> {
        match self.verb {
            WriteVerb::Delete | WriteVerb::Deletecollection => Vec::new(),
            _ => self.states.written().await,
        }
    }

    fn mark(&self, event: Option<u32>) -> Mark {
        Mark {
            run: self.run,
            // That of objects that are created before the run.
            event: event.unwrap_or(u32::MAX),
        }
    }

    async fn create(
        &self,
        connection: &mut Connection,
        object: u32,
        event: Option<u32>,
    ) -> Result<u64, ClientError> {
        let mut state = self.states.lock(object).await;
        let mark = self.mark(event);
        let path = self.objects.collection(0);
        let body = self.objects.body(0, object, Some(mark), None);
        let call = Call {
            content_type: self.objects.media_type(),
            ..Call::new(Method::POST, &path, body)
        };
        let response = connection.call(call).await?;
        let version = self.check(connection, &path, &response, mark, None)?;
        *state = Some((version, mark));
        Ok(response.len() as u64)
    }

    async fn delete(&self, connection: &mut Connection, object: u32) -> Result<u64, ClientError> {
        // Without a grace period: there is no kubelet to terminate a pod.
        let path = format!("{}?gracePeriodSeconds=0", self.objects.path(object));
        let response = connection.send(Method::DELETE, &path, Bytes::new()).await?;
        Ok(response.len() as u64)
    }

    /// Changes the mark of an object.
    async fn change(
        &self,
        connection: &mut Connection,
        object: u32,
        event: u32,
    ) -> Result<u64, ClientError> {
        // Locked until the response, so that the last response has the last version.
        let mut state = self.states.lock(object).await;
        let before = state.map(|(version, _)| version);
        let mark = self.mark(Some(event));
        let mut path = self.objects.path(object);
        if self.verb == WriteVerb::Apply {
            path += "?fieldManager=watchet-bench&force=true";
        }
        let method = match self.verb {
            WriteVerb::Update => Method::PUT,
            _ => Method::PATCH,
        };
        let (body, content_type) = self.changed(object, mark, before);
        let call = Call {
            content_type,
            ..Call::new(method, &path, body)
        };
        let response = connection.call(call).await?;
        let version = self.check(connection, &path, &response, mark, before)?;
        *state = Some((version, mark));
        Ok(response.len() as u64)
    }

    /// Returns the body that gives an object the mark, and its media type.
    fn changed(&self, object: u32, mark: Mark, before: Option<u64>) -> (Bytes, &'static str) {
        let value = mark.to_string();
        let merged = || json!({"metadata": {"annotations": {MARK: value}}}).to_string();
        match self.verb {
            WriteVerb::JsonPatch => {
                let path = format!("/metadata/annotations/{MARK}");
                let patch = json!([{"op": "replace", "path": path, "value": value}]);
                (patch.to_string().into(), "application/json-patch+json")
            }
            WriteVerb::MergePatch => (merged().into(), "application/merge-patch+json"),
            WriteVerb::StrategicPatch => {
                (merged().into(), "application/strategic-merge-patch+json")
            }
            WriteVerb::Apply => {
                let body = self.objects.body(0, object, Some(mark), None);
                (body, "application/apply-patch+yaml")
            }
            _ => {
                let body = self.objects.body(0, object, Some(mark), before);
                (body, self.objects.media_type())
            }
        }
    }

    /// Returns the version in a response, which must have the mark of the request.
    fn check(
        &self,
        connection: &Connection,
        path: &str,
        response: &[u8],
        mark: Mark,
        before: Option<u64>,
    ) -> Result<u64, ClientError> {
        let object = Object::read(connection.accept(), response);
        let object = object.map_err(|malformed| malformed.to_string());
        let checked = object.and_then(|object| {
            let version = object.version().ok_or("it has no version")?;
            if object.mark() != Some(mark) {
                return Err("it does not have the content that was written".to_owned());
            }
            if before.is_some_and(|before| version <= before) {
                return Err(format!("its version {version} is not newer"));
            }
            Ok(version)
        });
        checked.map_err(|problem| ClientError::Response {
            path: path.to_owned(),
            problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_differ_are_counted() {
        let mark = |event| Some(Mark { run: 1, event });
        let expected = [(5, mark(0)), (7, mark(1))];
        assert_eq!(deviating(&expected, &expected), 0);
        assert_eq!(deviating(&expected, &[(5, mark(0)), (6, mark(1))]), 1);
        assert_eq!(deviating(&expected, &[(5, mark(0)), (7, mark(0))]), 1);
        assert_eq!(deviating(&expected, &[(5, mark(0))]), 1);
        assert_eq!(deviating(&[], &expected), 2);
        assert_eq!(deviating(&expected, &[]), 2);
    }
}
