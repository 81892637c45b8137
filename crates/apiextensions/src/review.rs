//! ConversionReview (apiextensions.k8s.io/v1): the request to a conversion webhook and the validation of its response,
//! with upstream's messages. The response can change everything except the metadata, of which only changes of labels
//! and annotations are used.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use watchet_registry::Causes;
use watchet_registry::{metadata, names};

const KIND: &str = "ConversionReview";
const API_VERSION: &str = "apiextensions.k8s.io/v1";

/// The time limit of one review, as upstream.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of bytes of an invalid response that an error contains.
const SHOWN_BYTES_MAX: usize = 256;

/// A request for a conversion. The response must have its uid.
#[derive(Debug)]
pub(super) struct Review {
    uid: String,
    to: String,
    objects: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    converted_objects: Option<Vec<Value>>,
    #[serde(default)]
    result: Option<ReviewStatus>,
}

/// The fields of `Status` that are used.
#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// Returns the group, version and kind of an object, in the format of messages.
pub(super) fn kind_of(object: &Value) -> String {
    let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

impl Review {
    /// Returns the review of `objects`, at least one, for the version with the `apiVersion` `to`.
    pub(super) fn new(objects: Vec<Value>, to: &str) -> Self {
        Self {
            uid: uuid::Uuid::new_v4().to_string(),
            to: to.to_owned(),
            objects,
        }
    }

    /// Returns the review with this uid, which was not sent.
    #[cfg(feature = "fuzzing")]
    pub(super) fn with_uid(objects: Vec<Value>, to: &str, uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            ..Self::new(objects, to)
        }
    }

    /// Returns the body of the request.
    pub(super) fn body(&self) -> Bytes {
        let review = json!({
            "kind": KIND,
            "apiVersion": API_VERSION,
            "request": {
                "uid": self.uid, "desiredAPIVersion": self.to, "objects": self.objects,
            },
        });
        Bytes::from(review.to_string())
    }

    /// Returns the identifier of the request.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the `apiVersion` of the converted objects.
    pub(super) fn desired_api_version(&self) -> &str {
        &self.to
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the message for a failed call.
    pub(super) fn failed(&self, why: &dyn std::fmt::Display) -> String {
        format!("conversion webhook for {} failed: {why}", self.about())
    }

    /// Returns the group, version and kind of the first object. All objects have one kind, and most have one version.
    fn about(&self) -> String {
        self.objects.first().map(kind_of).unwrap_or_default()
    }

    /// Returns the converted objects, in the order of the request.
    ///
    /// # Errors
    /// The response is invalid or reports a failure.
    pub(super) fn converted(self, response: &[u8]) -> Result<Vec<Value>, String> {
        let converted = self.read(response).map_err(|why| self.failed(&why))?;
        let about = self.about();
        let (got, expected) = (converted.len(), self.objects.len());
        if got != expected {
            return Err(format!(
                "conversion webhook for {about} returned {got} objects, expected {expected}"
            ));
        }
        let pairs = self.objects.into_iter().zip(converted).enumerate();
        pairs
            .map(|(index, (original, converted))| {
                check(&original, &converted, &self.to).map_err(|why| {
                    format!(
                        "conversion webhook for {about} returned invalid converted object at index \
                         {index}: {why}"
                    )
                })?;
                restored(&original, converted).map_err(|why| {
                    format!(
                        "conversion webhook for {about} returned invalid metadata in object at index \
                         {index}: {why}"
                    )
                })
            })
            .collect()
    }

    fn read(&self, body: &[u8]) -> Result<Vec<Value>, String> {
        if body.is_empty() {
            return Err("0-length response with status code: 200".to_owned());
        }
        let read: ReviewResponse = serde_json::from_slice(body)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
        let (Some(kind), Some(api_version)) = (read.kind, read.api_version) else {
            let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            return Err(format!("Object 'Kind' is missing in '{shown}'"));
        };
        if kind != KIND || api_version != API_VERSION {
            return Err(format!(
                "expected webhook response of {API_VERSION}, Kind={KIND}, got {api_version}, \
                 Kind={kind}"
            ));
        }
        let response = read.response.ok_or("no response provided")?;
        if response.uid != self.uid {
            return Err(format!(
                "expected response.uid={:?}, got {:?}",
                self.uid, response.uid
            ));
        }
        let result = response.result.unwrap_or_default();
        match (result.status.as_deref(), result.message) {
            (Some("Success"), _) => Ok(response.converted_objects.unwrap_or_default()),
            (_, Some(message)) if !message.is_empty() => Err(message),
            (status, _) => Err(format!(
                "response.result.status was '{}', not 'Success'",
                status.unwrap_or_default()
            )),
        }
    }
}

/// Checks that `converted` is `original` in the version `to`.
fn check(original: &Value, converted: &Value, to: &str) -> Result<(), String> {
    if !converted.is_object() {
        return Err("it is no object".to_owned());
    }
    let text =
        |object: &Value, member: &str| object[member].as_str().unwrap_or_default().to_owned();
    let version = text(converted, "apiVersion");
    if version != to {
        return Err(format!(
            "invalid groupVersion (expected {to}, received {version})"
        ));
    }
    let (expected, kind) = (text(original, "kind"), text(converted, "kind"));
    if expected != kind {
        return Err(format!(
            "invalid kind (expected {expected}, received {kind})"
        ));
    }
    for (member, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (
            metadata::text(original, member),
            metadata::text(converted, member),
        );
        if expected != got {
            return Err(format!("must have the same {name}: {expected} != {got}"));
        }
    }
    Ok(())
}

/// Returns `converted` with the metadata of the original, except labels and annotations.
fn restored(original: &Value, mut converted: Value) -> Result<Value, String> {
    let mut metadata = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err("invalid metadata in converted object".to_owned()),
    };
    let mut restored = original["metadata"].clone();
    for member in ["labels", "annotations"] {
        match metadata.remove(member) {
            None | Some(Value::Null) => {
                restored
                    .as_object_mut()
                    .and_then(|restored| restored.remove(member));
            }
            Some(Value::Object(texts)) => {
                if restored[member].as_object() != Some(&texts) {
                    check_texts(member, &texts)?;
                }
                restored[member] = texts.into();
            }
            Some(_) => {
                return Err(format!("invalid metadata.{member} in converted object"));
            }
        }
    }
    converted["metadata"] = restored;
    Ok(converted)
}

fn check_texts(member: &str, texts: &Map<String, Value>) -> Result<(), String> {
    if let Some((key, _)) = texts.iter().find(|(_, text)| !text.is_string()) {
        return Err(format!(
            "metadata.{member}[{key}] must be a string in converted object"
        ));
    }
    let mut causes = Causes::default();
    match member {
        "labels" => names::label_problems(texts, &mut causes),
        _ => names::annotation_problems(texts, &mut causes),
    }
    match causes.into_vec() {
        none if none.is_empty() => Ok(()),
        causes => {
            let messages = causes.iter().map(|c| format!("{}: {}", c.field, c.message));
            Err(messages.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foo(version: &str) -> Value {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Foo",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 3,
                "labels": {"l": "1"}, "finalizers": ["f"]},
        })
    }

    fn response(review: &Review, objects: Value) -> Value {
        json!({"kind": KIND, "apiVersion": API_VERSION, "response": {
            "uid": review.uid, "result": {"status": "Success"}, "convertedObjects": objects,
        }})
    }

    /// Converts one foo of v1 to v2, with the response changed by `change`.
    fn check(change: impl Fn(&mut Value)) -> Result<Value, String> {
        let review = Review::new(vec![foo("v1")], "example.com/v2");
        let mut response = response(&review, json!([foo("v2")]));
        change(&mut response);
        let converted = review.converted(response.to_string().as_bytes());
        converted.map(|mut objects| objects.remove(0))
    }

    #[test]
    fn request_has_objects_and_desired_version() {
        let review = Review::new(vec![foo("v1"), foo("v3")], "example.com/v2");
        let body: Value = serde_json::from_slice(&review.body()).unwrap();
        assert_eq!(body["kind"], KIND);
        assert_eq!(body["apiVersion"], API_VERSION);
        assert_eq!(body["request"]["uid"], review.uid);
        assert_eq!(body["request"]["desiredAPIVersion"], "example.com/v2");
        assert_eq!(body["request"]["objects"], json!([foo("v1"), foo("v3")]));
    }

    #[test]
    fn of_metadata_only_labels_and_annotations_can_change() {
        let converted = check(|response| {
            let object = &mut response["response"]["convertedObjects"][0];
            object["spec"] = json!({"new": true});
            object["metadata"]["labels"] = json!({"l": "2"});
            object["metadata"]["annotations"] = json!({"a": "x"});
            object["metadata"]["finalizers"] = json!([]);
            object["metadata"]["generation"] = 7.into();
        });
        let mut expected = foo("v2");
        expected["spec"] = json!({"new": true});
        expected["metadata"]["labels"] = json!({"l": "2"});
        expected["metadata"]["annotations"] = json!({"a": "x"});
        assert_eq!(converted.unwrap(), expected);
        let converted = check(|response| {
            response["response"]["convertedObjects"][0]["metadata"]["labels"] = Value::Null;
        });
        assert_eq!(converted.unwrap()["metadata"].get("labels"), None);
    }

    #[test]
    fn invalid_responses_are_errors() {
        let about = "conversion webhook for example.com/v1, Kind=Foo";
        let failed = format!("{about} failed: ");
        let object = format!("{about} returned invalid converted object at index 0: ");
        let metadata = format!("{about} returned invalid metadata in object at index 0: ");
        let put = |path: &str, value: Value| {
            check(|response| *response.pointer_mut(path).unwrap() = value.clone()).unwrap_err()
        };
        let is = |got: String, prefix: &str, rest: &str| {
            assert_eq!(got, format!("{prefix}{rest}"));
        };
        let first = "/response/convertedObjects/0";
        is(
            put("/response", Value::Null),
            &failed,
            "no response provided",
        );
        let wrong = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
                     apiextensions.k8s.io/v1, Kind=Foo";
        is(put("/kind", "Foo".into()), &failed, wrong);
        assert!(put("/response/uid", "other".into()).contains(r#"got "other""#));
        is(
            put(
                "/response/result",
                json!({"status": "Failure", "message": "no"}),
            ),
            &failed,
            "no",
        );
        is(
            put("/response/result", json!({"status": "Failure"})),
            &failed,
            "response.result.status was 'Failure', not 'Success'",
        );
        is(
            put("/response/convertedObjects", json!([])),
            about,
            " returned 0 objects, expected 1",
        );
        is(put(first, json!("x")), &object, "it is no object");
        is(
            put(&format!("{first}/apiVersion"), "example.com/v1".into()),
            &object,
            "invalid groupVersion (expected example.com/v2, received example.com/v1)",
        );
        is(
            put(&format!("{first}/kind"), "Bar".into()),
            &object,
            "invalid kind (expected Foo, received Bar)",
        );
        is(
            put(&format!("{first}/metadata/name"), "b".into()),
            &object,
            "must have the same name: a != b",
        );
        is(
            put(&format!("{first}/metadata/uid"), "v".into()),
            &object,
            "must have the same UID: u != v",
        );
        is(
            put(&format!("{first}/metadata/labels"), json!({"l": 1})),
            &metadata,
            "metadata.labels[l] must be a string in converted object",
        );
        let bad = put(&format!("{first}/metadata/labels"), json!({"l": "-"}));
        assert!(
            bad.starts_with(&format!("{metadata}metadata.labels: ")),
            "{bad}"
        );
    }

    #[test]
    fn malformed_responses_are_errors() {
        for (response, message) in [
            ("", "0-length response"),
            ("nothing", "json parse error"),
            ("{}", "Object 'Kind' is missing in '{}'"),
            (r#"{"kind": 1}"#, "json parse error"),
        ] {
            let review = Review::new(vec![foo("v1")], "example.com/v2");
            let error = review.converted(response.as_bytes()).unwrap_err();
            let begins = "conversion webhook for example.com/v1, Kind=Foo failed: ";
            assert!(
                error.starts_with(begins) && error.contains(message),
                "{error}"
            );
        }
    }
}
