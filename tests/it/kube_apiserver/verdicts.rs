//! Compares validation with recorded responses of a kube-apiserver. Each line of `verdicts.txt` has a path, a status code, the causes
//! and an object, which fuzzing has changed. `scripts/test-kube-apiserver --record` writes it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::client::{JsonClient, JsonResponse};
use crate::harness::Server;

/// An object and the response to its creation.
struct Verdict {
    /// The path of the resource.
    path: String,
    object: Value,
    code: u64,
    /// The field and the message of each cause, sorted: kube-apiserver reports the causes of a map in random order.
    causes: Vec<[String; 2]>,
}

impl Verdict {
    fn parse(line: &str) -> Self {
        let mut parts = line.splitn(4, '\t');
        let mut part = || {
            parts
                .next()
                .expect("four parts in each line of verdicts.txt")
        };
        Self {
            path: part().to_owned(),
            code: part().parse().expect("a status code"),
            causes: serde_json::from_str(part()).expect("causes"),
            object: serde_json::from_str(part()).expect("an object"),
        }
    }

    /// Returns the line of the file.
    fn line(&self) -> String {
        let causes = json!(self.causes);
        format!("{}\t{}\t{causes}\t{}\n", self.path, self.code, self.object)
    }

    /// Returns the verdict of another server.
    async fn of(&self, client: &JsonClient) -> Self {
        let path = format!("{}?dryRun=All", self.path);
        let response = client.post(&path, &self.object).await;
        Self {
            path: self.path.clone(),
            object: self.object.clone(),
            code: response.code.into(),
            causes: causes(&response),
        }
    }
}

fn causes(response: &JsonResponse) -> Vec<[String; 2]> {
    let causes = response.body["details"]["causes"].as_array();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = causes.into_iter().flatten();
    let mut causes: Vec<_> = causes
        .map(|cause| [text(cause, "field"), text(cause, "message")])
        .collect();
    causes.sort();
    causes
}

fn verdicts() -> Vec<Verdict> {
    include_str!("verdicts.txt")
        .lines()
        .map(Verdict::parse)
        .collect()
}

/// The responses were recorded from kube-apiserver 1.36.
#[tokio::test]
async fn verdicts_on_objects_equal_those_of_a_kube_apiserver() {
    let server = Server::start(&["--storage=memory"]).await;
    let client = JsonClient::new(&server.kubeconfig()).await;
    let mut differences = String::new();
    let verdicts = verdicts();
    for code in [201, 400, 422] {
        assert!(
            verdicts.iter().any(|verdict| verdict.code == code),
            "{code}"
        );
    }
    for expected in verdicts {
        let actual = expected.of(&client).await;
        if (actual.code, &actual.causes) != (expected.code, &expected.causes) {
            let (object, path) = (&expected.object, &expected.path);
            writeln!(differences, "{path} {object}").expect("a string can be written");
            for (server, verdict) in [("kube-apiserver", &expected), ("watchet", &actual)] {
                writeln!(
                    differences,
                    "  {server}: {} {:?}",
                    verdict.code, verdict.causes
                )
                .expect("a string can be written");
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
    server.stop().await;
}

/// Returns the file with the verdicts of a kube-apiserver on the same objects.
pub(super) async fn recorded(client: &JsonClient) -> String {
    // Its admission requires the account, which a controller would create.
    let account = json!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let created = client.post(accounts, &account).await;
    assert!([201, 409].contains(&created.code), "{}", created.body);
    let mut lines = String::new();
    for verdict in verdicts() {
        lines += &verdict.of(client).await.line();
    }
    lines
}
