//! `bench fill` and `bench clear`: create and delete objects of a given size, spread over namespaces
//! and nodes. Objects that already exist are counted, not replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, StatusCode};

use super::args::{ClearArgs, Encoding, FillArgs, ObjectArgs, Resource};
use super::client::{self, ClientError, Connection};
use super::error::BenchError;
use super::meter::Meter;
use super::objects::{self, Spec};
use super::report::Report;
use super::requests::{self, RequestLoad, Volume};
use super::target::Target;
use watchet_tasks::Tasks;

impl ObjectArgs {
    /// Returns the name of object `number`.
    pub(super) fn name(&self, number: u32) -> String {
        format!("bench-{number}")
    }

    /// Returns the namespace of object `number`.
    pub(super) fn namespace_of(&self, number: u32) -> String {
        match self.namespaces.get() {
            1 => self.namespace.clone(),
            count => format!("{}-{}", self.namespace, number % count),
        }
    }
}

struct Fill {
    objects: ObjectArgs,
    labels: Vec<(String, String)>,
    nodes: u32,
    size: usize,
    existed: AtomicU64,
}

impl RequestLoad for Fill {
    async fn send(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        let namespace = self.objects.namespace_of(number);
        let node = format!("node-{}", number % self.nodes);
        let spec = Spec {
            name: &self.objects.name(number),
            namespace: &namespace,
            node: Some(&node),
            labels: &self.labels,
            annotation: None,
            version: None,
            size: self.size,
        };
        let body = objects::render(self.objects.resource, &spec);
        let bytes = body.len() as u64;
        let path = objects::collection(self.objects.resource, Some(&namespace));
        if objects::make(connection, &path, body).await? {
            return Ok(bytes);
        }
        self.existed.fetch_add(1, Ordering::Relaxed);
        Ok(0)
    }
}

/// Runs the load.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn run(args: FillArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    make_namespaces(&args.objects, target).await?;
    let fill = Arc::new(Fill {
        labels: args.label,
        nodes: args.nodes.get(),
        size: args.size,
        existed: AtomicU64::new(0),
        objects: args.objects,
    });
    let objects = &fill.objects;
    let volume = Volume {
        requests: objects.count.get(),
        rate: args.rate,
        connections: args.connections.get(),
        accept: Encoding::Json,
    };
    let mut report = Report::default();
    report.text("load", "fill");
    report.text("target", &target.url);
    report.text("resource", objects.resource.plural());
    report.count("size_bytes", fill.size as u64);
    report.count("namespaces", objects.namespaces.get());
    if objects.resource != Resource::Configmaps {
        report.count("nodes", fill.nodes);
    }
    let meter = Meter::new(&args.report, 0);
    requests::run(&mut report, target, volume, &meter, fill.clone()).await?;
    report.count("objects_existed", fill.existed.load(Ordering::Relaxed));
    Ok(report)
}

struct Clear {
    objects: ObjectArgs,
    missing: AtomicU64,
}

impl RequestLoad for Clear {
    async fn send(&self, connection: &mut Connection, number: u32) -> Result<u64, ClientError> {
        let namespace = self.objects.namespace_of(number);
        let collection = objects::collection(self.objects.resource, Some(&namespace));
        let name = self.objects.name(number);
        // Without a grace period: there is no kubelet to terminate a pod.
        let path = format!("{collection}/{name}?gracePeriodSeconds=0");
        match connection.send(Method::DELETE, &path, Bytes::new()).await {
            Ok(body) => Ok(body.len() as u64),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                self.missing.fetch_add(1, Ordering::Relaxed);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// Runs `clear`.
///
/// # Errors
/// The target rejects the setup.
pub(super) async fn clear(args: ClearArgs, target: &Arc<Target>) -> Result<Report, BenchError> {
    let volume = Volume {
        requests: args.objects.count.get(),
        rate: 0.0,
        connections: args.connections.get(),
        accept: Encoding::Json,
    };
    let mut report = Report::default();
    report.text("load", "clear");
    report.text("target", &target.url);
    report.text("resource", args.objects.resource.plural());
    let clear = Arc::new(Clear {
        objects: args.objects,
        missing: AtomicU64::new(0),
    });
    let meter = Meter::new(&args.report, 0);
    requests::run(&mut report, target, volume, &meter, Arc::clone(&clear)).await?;
    report.count("objects_missing", clear.missing.load(Ordering::Relaxed));
    Ok(report)
}

async fn make_namespaces(objects: &ObjectArgs, target: &Arc<Target>) -> Result<(), ClientError> {
    let tasks = Tasks::new();
    let (mut connection, driver) = client::connect(target, &tasks).await?;
    let made = driver.run(async {
        for number in 0..objects.namespaces.get() {
            objects::make_namespace(&mut connection, &objects.namespace_of(number)).await?;
        }
        Ok(())
    });
    let made = made.await;
    tasks.cancel();
    made
}
