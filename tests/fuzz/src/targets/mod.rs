//! The fuzz targets. Each is a function of bytes that panics if the program breaks a rule: a law that the target asserts,
//! or one of the program's own assertions.

mod configurations;
mod credentials;
mod custom_resources;
mod objects;
mod patches;
mod protobuf;
mod schemas;
mod self_test;
mod server;
mod store;
mod streams;
mod text;

use crate::mutate::split;

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    /// The name, which is that of the corpus.
    pub name: &'static str,
    /// What the target executes, for `--list`.
    pub about: &'static str,
    /// Executes an input.
    pub run: fn(&[u8]),
    /// Words that mutations insert.
    pub dictionary: &'static [&'static str],
    /// The maximum number of bytes of an input.
    pub bytes_max: usize,
    /// Parts of the paths of source files whose panics the program catches where they happen and reports as errors:
    /// third-party evaluators and parsers.
    pub isolated: &'static [&'static str],
}

impl Target {
    const fn new(name: &'static str, about: &'static str, run: fn(&[u8])) -> Self {
        Self {
            name,
            about,
            run,
            dictionary: &[],
            bytes_max: 16 << 10,
            isolated: &[],
        }
    }

    const fn with_words(mut self, dictionary: &'static [&'static str]) -> Self {
        self.dictionary = dictionary;
        self
    }

    const fn with_isolated(mut self, isolated: &'static [&'static str]) -> Self {
        self.isolated = isolated;
        self
    }
}

/// The crates that parse and evaluate CEL. `watchet-cel` catches their panics.
const CEL: &[&str] = &["/cel-", "/antlr4rust-", "/kube-cel-"];

/// All targets.
pub static ALL: &[Target] = &[
    Target::new(
        "apply",
        "server-side apply and managed fields",
        patches::apply,
    )
    .with_words(patches::WORDS),
    Target::new(
        "bodies",
        "request bodies in JSON, YAML and protobuf",
        objects::bodies,
    )
    .with_words(objects::CONTENT_TYPES),
    Target::new(
        "cel",
        "compilation and evaluation of CEL within its cost",
        schemas::cel,
    )
    .with_words(schemas::CEL_WORDS)
    .with_isolated(CEL),
    Target::new(
        "certificates",
        "X.509 certificates, requests and chains",
        credentials::certificates,
    ),
    Target::new(
        "configurations",
        "policies and configurations of the server",
        configurations::configurations,
    )
    .with_isolated(CEL),
    Target::new(
        "continue-tokens",
        "continue tokens of lists",
        text::continue_tokens,
    ),
    Target::new(
        "custom-resources",
        "CustomResourceDefinitions, their discovery, OpenAPI and objects",
        custom_resources::custom_resources,
    )
    .with_words(schemas::SCHEMA_WORDS)
    .with_isolated(CEL),
    Target::new(
        "etcd-values",
        "stored values and keys, also encrypted ones",
        objects::etcd_values,
    ),
    Target::new(
        "json-objects",
        "the scan of an object's JSON and its columns",
        objects::json_objects,
    )
    .with_words(objects::WORDS),
    Target::new(
        "json-paths",
        "JSONPath of printer columns",
        text::json_paths,
    )
    .with_words(text::PATH_WORDS),
    Target::new(
        "kubeconfigs",
        "kubeconfig files and the clients made of them",
        text::kubeconfigs,
    ),
    Target::new(
        "objects",
        "built-in objects: defaults, validation, Tables, encodings",
        server::objects,
    )
    .with_isolated(CEL),
    Target::new(
        "patches",
        "JSON patch, merge patch and strategic merge patch",
        patches::patches,
    )
    .with_words(patches::WORDS),
    Target::new(
        "protobuf",
        "protobuf bodies, compared with k8s-pb",
        protobuf::protobuf,
    ),
    Target::new("quantities", "resource quantities", text::quantities)
        .with_words(text::QUANTITY_WORDS),
    Target::new(
        "request-uris",
        "paths, queries and Accept headers",
        text::request_uris,
    )
    .with_words(text::URI_WORDS),
    Target::new(
        "selectors",
        "label, field and shard selectors",
        text::selectors,
    )
    .with_words(text::SELECTOR_WORDS),
    Target::new(
        "store-files",
        "damaged files of the embedded store",
        store::store_files,
    )
    .with_words(store::WORDS),
    Target::new(
        "structural-schemas",
        "schemas of custom resources: defaults, pruning, validation",
        schemas::structural,
    )
    .with_words(schemas::SCHEMA_WORDS)
    .with_isolated(CEL),
    Target::new("tokens", "bearer tokens and key sets", credentials::tokens),
    Target::new(
        "watch-streams",
        "responses to the client library's lists and watches",
        streams::watch_streams,
    ),
    Target::new(
        "webhooks",
        "configurations and responses of webhooks",
        configurations::webhooks,
    )
    .with_isolated(CEL),
];

/// Returns the target of a name, also one that tests the driver.
pub fn target(name: &str) -> Option<&'static Target> {
    let mut all = ALL.iter().chain(self_test::TARGETS);
    all.find(|target| target.name == name)
}

/// Returns the first `N` parts of an input; those that it lacks are empty.
fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut parts = split(input);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Returns the first `N` parts of an input as JSON; `None` if the first is not JSON. Other parts that are not JSON are null.
fn json_parts<const N: usize>(input: &[u8]) -> Option<[serde_json::Value; N]> {
    let mut is_first = true;
    let values = parts::<N>(input).map(|part| {
        let value = serde_json::from_slice(part);
        let is_valid = value.is_ok() || !std::mem::take(&mut is_first);
        is_valid.then(|| value.unwrap_or_default())
    });
    values[0]
        .is_some()
        .then(|| values.map(Option::unwrap_or_default))
}
