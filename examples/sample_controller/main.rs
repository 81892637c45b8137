//! The sample controller of Kubernetes, on this crate's informers: it makes Foos a resource of the server
//! and keeps a Deployment for each of them. It works against any Kubernetes server, also when that is
//! killed now and then. Several may run: one leads, the others wait.
//!
//! ```text
//! cargo run --example sample_controller -- --kubeconfig .watchet/kubeconfig
//! kubectl apply -f - <<'END'
//! apiVersion: samplecontroller.k8s.io/v1alpha1
//! kind: Foo
//! metadata: {name: example}
//! spec: {deploymentName: example, replicas: 3}
//! END
//! kubectl get deployment example
//! ```

#![allow(clippy::disallowed_names, reason = "a Foo is what there is")]

mod controller;
mod foo;
mod metrics;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use watchet::client::{
    ApiResource, EventRecorder, Kubeconfig, LeaderElectionConfig, LeaderElector, LeaderEnded,
    RestClient, RestConfig, RestError, SharedInformerFactory,
};

use controller::SampleController;
use foo::Foo;
use metrics::Counting;

/// How long what is in the works may take at the end.
const GRACE: Duration = Duration::from_secs(20);

/// The pause before a server that is away is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Keeps a Deployment for each Foo.
#[derive(Debug, Parser)]
struct Args {
    /// Where the server is and who asks; without it as kubectl and pods find it.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How many Foos are reconciled concurrently.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    workers: usize,

    /// Where the Lease is that says which of several controllers leads.
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    lease_namespace: String,

    /// How long the others wait for a leader that says nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    lease_duration: u64,

    /// Where metrics are served, e.g. 127.0.0.1:8080; not at all without it.
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
}

impl Args {
    fn client(&self) -> Result<RestClient, Box<dyn Error>> {
        let config = match &self.kubeconfig {
            Some(file) => RestConfig::from_kubeconfig(&Kubeconfig::load(&[file])?, None)?,
            None => RestConfig::infer()?,
        };
        Ok(RestClient::new(&config)?)
    }

    /// The usual proportions: 15 s, 10 s, 2 s.
    fn election(&self) -> LeaderElectionConfig {
        let lease_duration = Duration::from_secs(self.lease_duration);
        let identity = format!("sample-controller-{}", uuid::Uuid::new_v4());
        LeaderElectionConfig {
            lease_duration,
            renew_deadline: lease_duration * 2 / 3,
            retry_period: lease_duration * 2 / 15,
            ..LeaderElectionConfig::new(&self.lease_namespace, "sample-controller", identity)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let stop = CancellationToken::new();
    let mut running = pin!(run(&args, stop.clone()));
    // Biased: what has ended needs no signal. Both signals mean the same.
    tokio::select! {
        biased;
        ended = &mut running => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    running.await
}

/// Waits until this process leads, and controls until `stop`.
async fn run(args: &Args, stop: CancellationToken) -> Result<(), Box<dyn Error>> {
    let client = args.client()?;
    let elector = LeaderElector::new(&client, args.election())?;
    let counting = Counting::default();
    let serve = async {
        match args.metrics_address {
            Some(address) => metrics::serve(address, counting.clone()).await,
            None => std::future::pending().await,
        }
    };
    let lead = elector.run(stop, async |stop| {
        control(&client, args.workers, &counting, stop).await
    });
    // Biased: what is done counts. Those who wait to lead serve metrics, too.
    let led = tokio::select! {
        biased;
        led = lead => led,
        Err(error) = serve => return Err(error.into()),
    };
    match led {
        LeaderEnded::Done(done) => done,
        LeaderEnded::NeverLed => Ok(()),
        // Its supervisor starts it again, and then it waits until it leads.
        LeaderEnded::Lost => Err("the lease was lost".into()),
    }
}

/// From the definition of Foos to the end of the last task.
async fn control(
    client: &RestClient,
    workers: usize,
    counting: &Counting,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    match stop.run_until_cancelled(define_until_taken(client)).await {
        Some(defined) => defined?,
        None => return Ok(()),
    }
    let factory =
        SharedInformerFactory::new(client.clone()).with_default_resync(Duration::from_secs(30));
    let factory = Arc::new(factory);
    // Its task is one of the factory's, and so is waited for in the end.
    let recorder = EventRecorder::new(client, "sample-controller", factory.tasks());
    let controller = SampleController::new(client, &factory, recorder)?;
    counting.get_or_init(|| (factory.clone(), controller.queue()));
    factory.start();
    if let Some(synced) = stop
        .run_until_cancelled(factory.wait_for_cache_sync())
        .await
    {
        // Only now: what is not in the copy yet would be taken for deleted.
        synced?;
        tracing::info!("controlling");
        controller.run(workers, stop).await;
    }
    factory.shutdown(GRACE).await?;
    Ok(())
}

/// Makes Foos known to the server, also when it is away at first.
async fn define_until_taken(client: &RestClient) -> Result<(), Box<dyn Error>> {
    let definition = Foo::definition()?;
    loop {
        match define(client, &definition).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot define Foos; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Defines Foos unless they are defined. Returns whether the server has them now.
async fn define(
    client: &RestClient,
    definition: &CustomResourceDefinition,
) -> Result<bool, RestError> {
    let definitions = client.resource(ApiResource::of::<CustomResourceDefinition>());
    let known = match definitions.create(definition).await {
        Ok(known) => known,
        Err(error) if error.is_already_exists() => {
            let name = definition.metadata.name.as_deref().unwrap_or_default();
            definitions.get(name).await?
        }
        Err(error) => return Err(error),
    };
    let status = known.status.and_then(|status| status.conditions);
    let mut conditions = status.iter().flatten();
    Ok(conditions.any(|condition| condition.type_ == "Established" && condition.status == "True"))
}
