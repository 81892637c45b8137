//! Kubernetes' sample controller with the informers of `watchet::client`: defines the resource Foo and maintains a
//! Deployment for each Foo. It works with any Kubernetes server, also across restarts of the server. Several processes can
//! run: one is the leader, the others wait.
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

#![allow(clippy::disallowed_names, reason = "the resource is called Foo")]

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

/// The time limit of the shutdown.
const GRACE: Duration = Duration::from_secs(20);

/// The pause before another attempt to define Foos.
const PAUSE: Duration = Duration::from_millis(500);

/// Maintains a Deployment for each Foo
#[derive(Debug, Parser)]
struct Args {
    /// Kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Number of Foos that are reconciled concurrently
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    workers: usize,

    /// Namespace of the Lease for leader election
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    lease_namespace: String,

    /// Time after which another process can take over the Lease of a leader that does not renew it, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    lease_duration: u64,

    /// Address to serve metrics on, e.g. 127.0.0.1:9095 [default: metrics are not served]
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

    /// Returns the configuration of the leader election, in the proportions of client-go's defaults (15 s, 10 s, 2 s).
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
    // The end of the controller comes first. Both signals have the same effect.
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

/// Waits until this process is the leader, then runs the controller until `stop`.
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
    // The end of the election comes first. Processes that wait for the lease also serve metrics.
    let led = tokio::select! {
        biased;
        led = lead => led,
        Err(error) = serve => return Err(error.into()),
    };
    match led {
        LeaderEnded::Done(done) => done,
        LeaderEnded::NeverLed => Ok(()),
        // The process ends. A supervisor restarts it, and it waits for the lease again.
        LeaderEnded::Lost => Err("the lease was lost".into()),
    }
}

/// Defines Foos and runs the controller until `stop` and the end of its tasks.
async fn control(
    client: &RestClient,
    workers: usize,
    counting: &Counting,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error>> {
    match stop
        .run_until_cancelled(define_until_established(client))
        .await
    {
        Some(defined) => defined?,
        None => return Ok(()),
    }
    let factory =
        SharedInformerFactory::new(client.clone()).with_default_resync(Duration::from_secs(30));
    let factory = Arc::new(factory);
    // The recorder runs in the factory's tasks, so that the factory's shutdown waits for it.
    let recorder = EventRecorder::new(client, "sample-controller", factory.tasks());
    let controller = SampleController::new(client, &factory, recorder)?;
    counting.get_or_init(|| (factory.clone(), controller.queue()));
    factory.start();
    if let Some(synced) = stop
        .run_until_cancelled(factory.wait_for_cache_sync())
        .await
    {
        // The workers start after the sync: they consider an object that is not in the cache as deleted.
        synced?;
        tracing::info!("controlling");
        controller.run(workers, stop).await;
    }
    factory.shutdown(GRACE).await?;
    Ok(())
}

/// Defines Foos and waits until the server serves them. Retries after errors.
async fn define_until_established(client: &RestClient) -> Result<(), Box<dyn Error>> {
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

/// Defines Foos unless they are defined. Returns true if the server serves them.
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
