//! Texts in formats of their own: selectors, tokens of lists, paths, quantities, URIs, kubeconfigs.

use std::str::FromStr as _;

use http::{Method, Uri};
use serde_json::Value;
use watchet_api::{
    ContinueToken, FieldSelector, LabelSelector, ObjectKey, ShardSelector, StorageKey,
};
use watchet_apiextensions::fuzzing::find_by_json_path;
use watchet_client::{Kubeconfig, RestClient, RestConfig};
use watchet_http::fuzzing::parse_options;
use watchet_http::{RequestInfo, ResourceRequest};
use watchet_schema::Quantity;

use super::parts;

pub(super) const SELECTOR_WORDS: &[&str] = &[
    "app",
    "in",
    "notin",
    "!",
    "=",
    "==",
    "!=",
    ">",
    "<",
    "(",
    ")",
    ",",
    " ",
    "metadata.name",
    "spec.nodeName",
    "\\,",
    "\\=",
    "\\\\",
    "shardRange(",
    "object.metadata.uid",
    "'",
    "0x",
    "||",
    "example.com/name",
];

pub(super) const PATH_WORDS: &[&str] = &[
    ".spec", "..", "[", "]", "[*]", "[0]", "[-1]", "[::2]", "[1:3]", "?(@", "==", "\"a\"", "'a'",
    "&&", "(", ")", "{", "}", "\\.",
];

pub(super) const QUANTITY_WORDS: &[&str] = &[
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e",
    "E",
    "e-",
    "+",
    "-",
    ".",
    "999999999",
];

pub(super) const URI_WORDS: &[&str] = &[
    "/api/v1",
    "/apis/apps/v1",
    "/namespaces/",
    "/pods",
    "/status",
    "/watch",
    "?watch=true",
    "&limit=",
    "&continue=",
    "resourceVersion=",
    "resourceVersionMatch=Exact",
    "labelSelector=",
    "fieldSelector=",
    "timeoutSeconds=",
    "%2e%2e",
    "%00",
    "fieldManager=",
    "dryRun=All",
    "force=true",
    "fieldValidation=Strict",
    "propagationPolicy=",
    "gracePeriodSeconds=",
    "application/json",
    ";as=Table;v=v1;g=meta.k8s.io",
    ";q=0.5",
    "*/*",
    "application/vnd.kubernetes.protobuf",
    ";stream=watch",
];

/// A selector that was parsed is printed as a text with the same meaning.
pub(super) fn selectors(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    if let Ok(selector) = LabelSelector::from_str(text) {
        let printed = selector.to_string();
        let again = LabelSelector::from_str(&printed).expect("what was printed can be parsed");
        assert_eq!(again.to_string(), printed);
        let requirements =
            |selector: &LabelSelector| format!("{:?}", selector.requirements().collect::<Vec<_>>());
        assert_eq!(requirements(&again), requirements(&selector), "{text:?}");
        for value in [None, Some(""), Some("a"), Some("1")] {
            assert_eq!(
                again.matches(|_| value),
                selector.matches(|_| value),
                "{text:?}, {value:?}"
            );
        }
    }
    if let Ok(selector) = FieldSelector::from_str(text) {
        let printed = selector.to_string();
        let again = FieldSelector::from_str(&printed).expect("what was printed can be parsed");
        assert_eq!(format!("{again:?}"), format!("{selector:?}"), "{text:?}");
    }
    if let Ok(selector) = ShardSelector::from_str(text) {
        let printed = selector.to_string();
        let again = ShardSelector::from_str(&printed).expect("what was printed can be parsed");
        assert_eq!(again.to_string(), printed);
    }
}

/// A token that was decoded is encoded to a token of the same position.
pub(super) fn continue_tokens(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    // Most inputs are the JSON in a token, which is easier to mutate.
    let json = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, input);
    for text in [text, &json] {
        // An empty start is that of the first page, for which no token is made.
        if let Ok(token) = ContinueToken::decode(text)
            && !token.start.is_empty()
        {
            let again = ContinueToken::decode(&token.encode());
            assert_eq!(again.as_ref(), Ok(&token), "{text:?}");
        }
    }
}

/// A path finds values inside the value only.
pub(super) fn json_paths(input: &[u8]) {
    let [path, value] = parts(input);
    let (Ok(path), Ok(value)) = (str::from_utf8(path), serde_json::from_slice::<Value>(value))
    else {
        return;
    };
    let Some(found) = find_by_json_path(path, &value) else {
        return;
    };
    let mut inside = Vec::new();
    collect(&value, &mut inside);
    for found in found {
        assert!(
            inside.iter().any(|inside| std::ptr::eq(*inside, found)),
            "{path:?} finds {found}"
        );
    }
}

fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => members.values().for_each(|member| collect(member, found)),
        _ => {}
    }
}

/// The canonical text of a quantity is the same quantity, and its order is that of numbers.
pub(super) fn quantities(input: &[u8]) {
    let [one, other] = parts(input).map(|part| str::from_utf8(part).unwrap_or_default());
    let Ok(quantity) = Quantity::parse(one) else {
        return;
    };
    let canonical = quantity.to_string();
    let exponent = canonical.split_once('e').map(|(_, exponent)| exponent);
    if exponent.is_some_and(|exponent| exponent.parse::<i32>().is_err()) {
        // It has 32 bits when it is parsed, as in kube-apiserver.
        return;
    }
    let again = Quantity::parse(&canonical).expect("what was printed can be parsed");
    assert!(again == quantity, "{one:?} is printed as {canonical:?}");
    assert_eq!(again.to_string(), canonical, "{one:?}");
    if one.len() < 16 && one.bytes().all(|byte| byte.is_ascii_digit()) {
        assert_eq!(Ok(quantity.value()), one.parse(), "{one:?}");
    }
    let rounded = quantity.clone().rounded_up();
    assert!(
        rounded.is_whole() && rounded >= quantity,
        "{one:?} is rounded to {rounded}"
    );
    let Ok(other) = Quantity::parse(other) else {
        return;
    };
    let reversed = other
        .partial_cmp(&quantity)
        .map(std::cmp::Ordering::reverse);
    assert_eq!(
        quantity.partial_cmp(&other),
        reversed,
        "{quantity} and {other}"
    );
    let limit = Quantity::parse("1e28").expect("it is a quantity");
    let is_small =
        |one: &Quantity| *one < limit && limit.clone() + one.clone() > Quantity::of_count(0);
    // Larger amounts are not added.
    if is_small(&quantity) && is_small(&other) {
        let sum = quantity.clone() + other.clone();
        assert!(
            sum == other.clone() + quantity.clone(),
            "{quantity} + {other} = {sum}"
        );
        let again = sum.clone() - other.clone();
        assert!(
            again == quantity,
            "{quantity} + {other} = {sum}, - {other} = {again}"
        );
    }
}

/// The path of a resource that was parsed is parsed to the same resource.
pub(super) fn request_uris(input: &[u8]) {
    let [line, accept] = parts(input);
    let (Ok(line), Ok(accept)) = (str::from_utf8(line), str::from_utf8(accept)) else {
        return;
    };
    let (method, uri) = line.split_once(' ').unwrap_or(("GET", line));
    let (Ok(method), Ok(uri)) = (Method::from_str(method), Uri::from_str(uri)) else {
        return;
    };
    parse_options(
        uri.query().unwrap_or_default(),
        Some(accept).filter(|accept| !accept.is_empty()),
    );
    let parsed = RequestInfo::parse(&method, uri.path(), uri.query());
    let Ok(RequestInfo::Resource(request)) = parsed else {
        return;
    };
    let path = path_of(&request);
    let again = RequestInfo::parse(&method, &path, uri.query());
    let Ok(RequestInfo::Resource(again)) = again else {
        panic!("{path:?} of {uri} is {again:?}");
    };
    assert_eq!(
        format!("{again:?}"),
        format!("{request:?}"),
        "{path:?} of {uri}"
    );
    let namespace = request.namespace.as_deref();
    let name = request.name.as_deref().unwrap_or("name");
    let key = ObjectKey::new(namespace, name);
    assert_eq!(
        (key.name(), key.namespace()),
        (name, namespace.unwrap_or_default())
    );
    let stored = StorageKey::new(&format!("/{}/{key}", "resources"));
    assert!(
        stored.is_ok(),
        "the names of {uri} cannot be a key: {stored:?}"
    );
}

/// Returns the path of a request, with everything escaped that can be.
fn path_of(request: &ResourceRequest) -> String {
    let mut segments = match &*request.group {
        "" => vec!["api", &request.version],
        group => vec!["apis", group, &request.version],
    };
    if request.is_watch_path {
        segments.push("watch");
    }
    let is_namespace = request.group.is_empty()
        && request.resource == "namespaces"
        && request.name == request.namespace;
    match &request.namespace {
        Some(namespace) if !is_namespace => segments.extend(["namespaces", namespace]),
        _ => {}
    }
    segments.push(&request.resource);
    segments.extend(request.name.as_deref());
    segments.extend(
        request
            .subresource
            .as_deref()
            .into_iter()
            .flat_map(|sub| sub.split('/')),
    );
    let escape =
        |segment: &str| -> String { segment.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    segments
        .iter()
        .map(|segment| format!("/{}", escape(segment)))
        .collect()
}

/// Each context of a kubeconfig is a client or an error.
pub(super) fn kubeconfigs(input: &[u8]) {
    let Ok(kubeconfig) = str::from_utf8(input)
        .unwrap_or_default()
        .parse::<Kubeconfig>()
    else {
        return;
    };
    let contexts = kubeconfig.contexts().map(Some);
    for context in contexts.chain([None]).take(20) {
        if let Ok(config) = RestConfig::from_kubeconfig(&kubeconfig, context) {
            // No request is sent, so no program is started. A client reads files; those of the corpus do not exist.
            drop(RestClient::new(&config));
        }
    }
}
