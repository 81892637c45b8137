//! ConversionReview (apiextensions.k8s.io/v1): what a webhook is asked that converts objects, and what of
//! its answer counts, in the words of Kubernetes. It may change everything but what an object is: of the
//! metadata only labels and annotations are taken over.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::registry::Causes;
use crate::registry::{metadata, names};

const KIND: &str = "ConversionReview";
const API_VERSION: &str = "apiextensions.k8s.io/v1";

/// How much of an answer that is none is told.
const TOLD_BYTES_MAX: usize = 256;

/// A question, to which one answer fits.
#[derive(Debug)]
pub(super) struct Review {
    uid: String,
    to: String,
    objects: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
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
    result: Option<Told>,
}

/// A `Status`, as far as it counts.
#[derive(Default, Deserialize)]
struct Told {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// The kind of an object with its group and version, as messages have it.
pub(super) fn kind_of(object: &Value) -> String {
    let text = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

impl Review {
    /// Asks for `objects`, of which there are some, as ones of the `apiVersion` `to`.
    pub(super) fn new(objects: Vec<Value>, to: &str) -> Self {
        Self {
            uid: uuid::Uuid::new_v4().to_string(),
            to: to.to_owned(),
            objects,
        }
    }

    /// What is posted.
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

    /// What went wrong before there was an answer, as people are told.
    pub(super) fn failed(&self, why: &dyn std::fmt::Display) -> String {
        format!("conversion webhook for {} failed: {why}", self.about())
    }

    /// What the objects are; all are of one kind, and few of several versions.
    fn about(&self) -> String {
        self.objects.first().map(kind_of).unwrap_or_default()
    }

    /// The converted objects, in the order of the question.
    ///
    /// # Errors
    /// The answer is none, or one that nobody may give.
    pub(super) fn converted(self, answer: &[u8]) -> Result<Vec<Value>, String> {
        let converted = self.read(answer).map_err(|why| self.failed(&why))?;
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

    fn read(&self, answer: &[u8]) -> Result<Vec<Value>, String> {
        if answer.is_empty() {
            return Err("0-length response with status code: 200".to_owned());
        }
        let read: Answer = serde_json::from_slice(answer)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
        let (Some(kind), Some(api_version)) = (read.kind, read.api_version) else {
            let told = String::from_utf8_lossy(&answer[..answer.len().min(TOLD_BYTES_MAX)]);
            return Err(format!("Object 'Kind' is missing in '{told}'"));
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

/// Whether `converted` is the same object in the version `to`.
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

/// `converted` with the metadata of the original, but for what a conversion may change of it.
fn restored(original: &Value, mut converted: Value) -> Result<Value, String> {
    let mut given = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(_) => return Err("invalid metadata in converted object".to_owned()),
    };
    let mut kept = original["metadata"].clone();
    for member in ["labels", "annotations"] {
        match given.remove(member) {
            None | Some(Value::Null) => {
                kept.as_object_mut().and_then(|kept| kept.remove(member));
            }
            Some(Value::Object(texts)) => {
                if kept[member].as_object() != Some(&texts) {
                    check_texts(member, &texts)?;
                }
                kept[member] = texts.into();
            }
            Some(_) => {
                return Err(format!("invalid metadata.{member} in converted object"));
            }
        }
    }
    converted["metadata"] = kept;
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
            let told = causes.iter().map(|c| format!("{}: {}", c.field, c.message));
            Err(told.collect::<Vec<_>>().join(", "))
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

    fn answer(review: &Review, objects: Value) -> Value {
        json!({"kind": KIND, "apiVersion": API_VERSION, "response": {
            "uid": review.uid, "result": {"status": "Success"}, "convertedObjects": objects,
        }})
    }

    /// What comes of an answer to the question for one foo of v1 as v2.
    fn check(change: impl Fn(&mut Value)) -> Result<Value, String> {
        let review = Review::new(vec![foo("v1")], "example.com/v2");
        let mut answer = answer(&review, json!([foo("v2")]));
        change(&mut answer);
        let converted = review.converted(answer.to_string().as_bytes());
        converted.map(|mut objects| objects.remove(0))
    }

    #[test]
    fn the_question_has_the_objects_and_their_version() {
        let review = Review::new(vec![foo("v1"), foo("v3")], "example.com/v2");
        let body: Value = serde_json::from_slice(&review.body()).unwrap();
        assert_eq!(body["kind"], KIND);
        assert_eq!(body["apiVersion"], API_VERSION);
        assert_eq!(body["request"]["uid"], review.uid);
        assert_eq!(body["request"]["desiredAPIVersion"], "example.com/v2");
        assert_eq!(body["request"]["objects"], json!([foo("v1"), foo("v3")]));
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_are_taken_over() {
        let converted = check(|answer| {
            let object = &mut answer["response"]["convertedObjects"][0];
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
        let converted = check(|answer| {
            answer["response"]["convertedObjects"][0]["metadata"]["labels"] = Value::Null;
        });
        assert_eq!(converted.unwrap()["metadata"].get("labels"), None);
    }

    #[test]
    fn answers_that_nobody_may_give() {
        let about = "conversion webhook for example.com/v1, Kind=Foo";
        let failed = format!("{about} failed: ");
        let object = format!("{about} returned invalid converted object at index 0: ");
        let metadata = format!("{about} returned invalid metadata in object at index 0: ");
        let put = |path: &str, value: Value| {
            check(|answer| *answer.pointer_mut(path).unwrap() = value.clone()).unwrap_err()
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
    fn what_is_no_answer() {
        for (answer, told) in [
            ("", "0-length response"),
            ("nothing", "json parse error"),
            ("{}", "Object 'Kind' is missing in '{}'"),
            (r#"{"kind": 1}"#, "json parse error"),
        ] {
            let review = Review::new(vec![foo("v1")], "example.com/v2");
            let error = review.converted(answer.as_bytes()).unwrap_err();
            let begins = "conversion webhook for example.com/v1, Kind=Foo failed: ";
            assert!(error.starts_with(begins) && error.contains(told), "{error}");
        }
    }
}
