//! kill -9 of the program at random moments of a load of writes: after each, every acknowledged object has its last
//! state and version, every record and index is consistent, and no revision is used twice.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use watchet_test_util::seeds::seed_or;

use super::{CONFIG_MAPS, store_done, version};
use crate::harness::{Protocol, Server, Wire, full, request};

/// The number of kills: `WATCHET_TEST_KILLS`, or 5.
const KILLS: &str = "WATCHET_TEST_KILLS";

const WRITERS: usize = 4;

/// The number of objects of a writer.
const OBJECTS: usize = 8;

/// The state of an object: its version and value; `None` if it does not exist.
type State = Option<(u64, u64)>;

/// What a writer knows.
#[derive(Debug, Default)]
struct Writer {
    /// The objects that exist, by acknowledged writes.
    acknowledged: BTreeMap<String, (u64, u64)>,
    /// The object whose write was not acknowledged, and the value that it has if the write was made.
    unsure: Option<(String, Option<u64>)>,
    /// The number of acknowledged writes.
    writes: usize,
    last_version: u64,
}

impl Writer {
    /// Writes until the server has ended.
    async fn run(&mut self, mut wire: Wire, number: usize, random: &mut Rng) {
        loop {
            let name = format!("w{number}-{}", random.usize(..OBJECTS));
            let value = random.u64(..);
            let present = self.acknowledged.get(&name).copied();
            let path = format!("{CONFIG_MAPS}/{name}");
            let (method, path, body, after) = match present {
                None => (
                    Method::POST,
                    CONFIG_MAPS.to_owned(),
                    object(&name, value, 0),
                    Some(value),
                ),
                Some(_) if random.u8(..) < 64 => (Method::DELETE, path, String::new(), None),
                Some((at, _)) => (Method::PUT, path, object(&name, value, at), Some(value)),
            };
            self.unsure = Some((name.clone(), after));
            let headers = [("content-type", "application/json")];
            let sent = request(method, &path, &headers, full(&body));
            let Ok(response) = wire.open(sent).await else {
                return;
            };
            let status = response.status();
            let Ok(body) = http_body_util::BodyExt::collect(response.into_body()).await else {
                return;
            };
            let body: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
            assert!(status.is_success(), "{status}: {body}");
            match after {
                Some(value) => {
                    let at = version(&body);
                    assert!(at > self.last_version, "{at} after {}", self.last_version);
                    self.last_version = at;
                    self.acknowledged.insert(name, (at, value));
                }
                None => drop(self.acknowledged.remove(&name)),
            }
            self.unsure = None;
            self.writes += 1;
        }
    }

    /// Compares what is known with the `found` objects, and takes over the outcome of an unsure write.
    fn check(&mut self, found: &BTreeMap<String, (u64, u64)>, story: &str) {
        let names = self.acknowledged.keys().cloned().collect::<Vec<_>>();
        let unsure = self.unsure.take();
        let others = unsure.iter().map(|(name, _)| name.clone());
        for name in names.into_iter().chain(others) {
            let (acknowledged, found): (State, State) = (
                self.acknowledged.get(&name).copied(),
                found.get(&name).copied(),
            );
            let is_made = unsure
                .as_ref()
                .is_some_and(|(of, value)| *of == name && found.map(|(_, value)| value) == *value);
            assert!(
                found == acknowledged || is_made,
                "{story}: {name} is {found:?}, acknowledged {acknowledged:?}, unsure {unsure:?}"
            );
            match found {
                Some(state) => drop(self.acknowledged.insert(name, state)),
                None => drop(self.acknowledged.remove(&name)),
            }
        }
    }
}

fn object(name: &str, value: u64, at: u64) -> String {
    let mut object = json!({"metadata": {"name": name}, "data": {"value": value.to_string()}});
    if at != 0 {
        object["metadata"]["resourceVersion"] = json!(at.to_string());
    }
    object.to_string()
}

/// Returns the objects of the writers, and the version of the list.
async fn stored(server: &Server) -> (BTreeMap<String, (u64, u64)>, u64) {
    let mut wire = server.plain(Protocol::Http1).await;
    let list = wire.send(Method::GET, CONFIG_MAPS, &[], "").await;
    assert_eq!(list.status, StatusCode::OK);
    let list = list.json();
    let mut found = BTreeMap::new();
    for item in list["items"].as_array().expect("items") {
        let name = item["metadata"]["name"].as_str().expect("a name");
        let value = item["data"]["value"].as_str().expect("a value");
        let value = value.parse().expect("a number");
        found.insert(name.to_owned(), (version(item), value));
    }
    (found, version(&list))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_random_moments_lose_nothing() {
    let kills: usize = std::env::var(KILLS).map_or(5, |kills| kills.parse().expect("a number"));
    let mut random = Rng::with_seed(seed_or(0x5eed_0500));
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Checkpoints and collections of history at many moments.
    let flags = ["--etcd-compaction-interval=100ms"];
    let mut writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    for kill in 0.. {
        let story = format!("kill {kill}");
        // Every record, index and deadline, with the changes that only the log has.
        if kill > 0 {
            store_done(directory.path(), &["check"]).await;
        }
        let server = Server::start_in(directory.path(), &flags).await;
        let (found, at) = stored(&server).await;
        for writer in &mut writers {
            assert!(
                at >= writer.last_version,
                "{story}: {at} after {}",
                writer.last_version
            );
            writer.check(&found, &story);
        }
        let known: usize = writers.iter().map(|writer| writer.acknowledged.len()).sum();
        assert_eq!(known, found.len(), "{story}: no other objects");
        let writes: usize = writers.iter().map(|writer| writer.writes).sum();
        // On a busy machine a server may be killed before its first write.
        if kill >= kills && writes > kills {
            server.stop().await;
            println!("{kill} kills, {writes} acknowledged writes");
            return;
        }
        assert!(kill < 10 * kills, "the server was busy: {writes} writes");
        let mut runs = Vec::new();
        for (number, writer) in writers.iter_mut().enumerate() {
            let wire = server.plain(Protocol::Http1).await;
            let mut random = Rng::with_seed(random.u64(..));
            runs.push(async move { writer.run(wire, number, &mut random).await });
        }
        let moment = Duration::from_micros(random.u64(..400_000));
        let killed = async {
            tokio::time::sleep(moment).await;
            server.kill().await;
        };
        tokio::join!(futures::future::join_all(runs), killed);
    }
}
