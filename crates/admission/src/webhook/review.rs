//! AdmissionReview admission.k8s.io/v1: the request to a webhook, and the validation of its response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::matching::Matched;
use super::super::request::{AdmissionRequest, GroupVersionKind, GroupVersionResource};
use watchet_api::Status;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A request that waits for its response.
pub(crate) struct Review {
    webhook: String,
    uid: String,
    body: Bytes,
}

/// The verified response of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// The error, if the webhook denies the write.
    pub(crate) denied: Option<Status>,
    /// The JSON patch of a mutating webhook.
    pub(crate) patch: Vec<u8>,
    pub(super) warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<PartialStatus>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

/// A `Status` all of whose fields are optional.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialStatus {
    status: Option<String>,
    message: Option<String>,
    reason: Option<String>,
    details: Option<Value>,
    code: Option<i64>,
}

impl Review {
    /// Creates a request that was not sent.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn with_uid(uid: &str) -> Self {
        Self {
            webhook: "webhook.example.com".to_owned(),
            uid: uid.to_owned(),
            body: Bytes::new(),
        }
    }

    /// Creates the request to `webhook` for `write`, in the version `matched`.
    pub(super) fn new(
        webhook: &str,
        write: &AdmissionRequest<'_>,
        matched: &Matched,
        object: &Value,
        old_object: &Value,
    ) -> Self {
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = request(write, matched);
        request["uid"] = uid.as_str().into();
        request["object"] = object.clone();
        request["oldObject"] = old_object.clone();
        let body = json!({"kind": KIND, "apiVersion": API_VERSION, "request": request});
        Self {
            webhook: webhook.to_owned(),
            uid,
            body: Bytes::from(body.to_string()),
        }
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// Checks and reads a response.
    ///
    /// # Errors
    /// The response does not match this request; with upstream's message.
    pub(crate) fn verify(&self, response: &[u8], mutating: bool) -> Result<Verified, String> {
        let review: AdmissionReview = serde_json::from_slice(response).map_err(|error| {
            format!("failed to call webhook: couldn't decode the response: {error}")
        })?;
        let invalid = |why: String| format!("received invalid webhook response: {why}");
        if review.kind != KIND || review.api_version != API_VERSION {
            return Err(invalid(format!(
                "expected webhook response of {API_VERSION}, Kind={KIND}, got {}, Kind={}",
                review.api_version, review.kind
            )));
        }
        let response = review
            .response
            .ok_or_else(|| invalid("webhook response was absent".to_owned()))?;
        if response.uid != self.uid {
            return Err(invalid(format!(
                "expected response.uid={:?}, got {:?}",
                self.uid, response.uid
            )));
        }
        let patch = patch(&response, mutating).map_err(invalid)?;
        Ok(Verified {
            denied: (!response.allowed).then(|| self.denial(response.status.unwrap_or_default())),
            patch,
            warnings: response.warnings.unwrap_or_default(),
        })
    }

    fn denial(&self, partial: PartialStatus) -> Status {
        let by = format!("admission webhook {:?} denied the request", self.webhook);
        let reason = partial.reason.unwrap_or_default();
        let message = match (partial.message.filter(|m| !m.is_empty()), &*reason) {
            (Some(message), _) => format!("{by}: {message}"),
            (None, "") => format!("{by} without explanation"),
            (None, reason) => format!("{by}: {reason}"),
        };
        let code = partial.code.and_then(|code| u16::try_from(code).ok());
        let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
        let mut status = Status::failure(code, &reason, message);
        if let Some(text) = partial
            .status
            .filter(|text| !text.is_empty() && text != "Success")
        {
            status.status = text;
        }
        // Invalid details are ignored: the denial stands without them.
        status.details = partial.details.and_then(|d| serde_json::from_value(d).ok());
        status
    }
}

fn patch(response: &Response, mutating: bool) -> Result<Vec<u8>, String> {
    let patch = response.patch.as_deref().filter(|patch| !patch.is_empty());
    let kind = response.patch_type.as_deref();
    match (patch, kind, mutating) {
        (None, None, _) => Ok(Vec::new()),
        (Some(_), _, false) => Err("validating webhook may not return response.patch".to_owned()),
        (None, _, false) => Err("validating webhook may not return response.patchType".to_owned()),
        (Some(_), None, true) => {
            Err("webhook returned response.patch but not response.patchType".to_owned())
        }
        (None, Some(_), true) => {
            Err("webhook returned response.patchType but not response.patch".to_owned())
        }
        (Some(patch), Some("JSONPatch"), true) => STANDARD
            .decode(patch)
            .map_err(|error| format!("response.patch is no base64: {error}")),
        (Some(_), Some(other), true) => Err(format!(
            "webhook returned invalid response.patchType of {other:?}"
        )),
    }
}

/// The request without its uid and objects, as reviews and CEL have it.
pub(crate) fn request(write: &AdmissionRequest<'_>, matched: &Matched) -> Value {
    let mut request = Map::new();
    let mut set = |key: &str, value: Value| request.insert(key.to_owned(), value);
    set("kind", kind(&matched.kind));
    set("resource", resource(&matched.resource));
    set("requestKind", kind(&write.kind));
    set("requestResource", resource(&write.resource));
    for (key, text) in [("name", write.name), ("namespace", write.namespace)] {
        if !text.is_empty() {
            set(key, text.into());
        }
    }
    if !write.subresource.is_empty() {
        set("subResource", write.subresource.into());
        set("requestSubResource", write.subresource.into());
    }
    set("operation", write.operation.as_str().into());
    set("userInfo", json!(write.user));
    set("dryRun", write.dry_run.into());
    set("options", write.options.build());
    Value::Object(request)
}

fn kind(kind: &GroupVersionKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn resource(resource: &GroupVersionResource) -> Value {
    json!({
        "group": resource.group, "version": resource.version, "resource": resource.resource,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::request::Operation;
    use super::super::super::testing;
    use super::*;

    fn review() -> Review {
        let write = testing::write(Operation::Create, "pods", "ns", "one");
        let matched = Matched {
            resource: write.resource.clone(),
            kind: write.kind.clone(),
        };
        Review::new("a.b.c", &write, &matched, &write.object, &Value::Null)
    }

    fn answer(review: &Review, response: Value) -> Value {
        let mut answer = json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "response": {"uid": review.uid, "allowed": true},
        });
        for (key, value) in response.as_object().unwrap() {
            answer["response"][key] = value.clone();
        }
        answer
    }

    fn denied(response: Value, code: u16, message: &str) {
        let review = review();
        let mut answer = answer(&review, response);
        answer["response"]["allowed"] = false.into();
        let verified = review.verify(answer.to_string().as_bytes(), false).unwrap();
        let status = verified.denied.unwrap();
        assert_eq!((status.code, &*status.message), (code, message));
        assert_eq!(status.status, "Failure");
    }

    #[test]
    fn denial_has_the_message_of_the_webhook() {
        let by = "admission webhook \"a.b.c\" denied the request";
        denied(json!({}), 400, &format!("{by} without explanation"));
        denied(
            json!({"status": {"reason": "No"}}),
            400,
            &format!("{by}: No"),
        );
        denied(
            json!({"status": {"code": 403, "message": "no", "reason": "Forbidden"}}),
            403,
            &format!("{by}: no"),
        );
        denied(
            json!({"status": {"code": 200, "status": "Success"}}),
            400,
            &format!("{by} without explanation"),
        );
    }

    fn refused(mutating: bool, change: impl Fn(&mut Value), words: &str) {
        let review = review();
        let mut answer = answer(&review, json!({}));
        change(&mut answer);
        let error = review
            .verify(answer.to_string().as_bytes(), mutating)
            .unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn response_that_does_not_match_the_request_is_an_error() {
        refused(
            true,
            |a| a["kind"] = "Pod".into(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=Pod",
        );
        refused(
            true,
            |a| a["apiVersion"] = "admission.k8s.io/v1beta1".into(),
            "expected webhook response",
        );
        refused(
            true,
            |a| drop(a.as_object_mut().unwrap().remove("response")),
            "webhook response was absent",
        );
        refused(
            true,
            |a| a["response"]["uid"] = "x".into(),
            "expected response.uid=",
        );
        refused(
            true,
            |a| a["response"]["patch"] = "W10=".into(),
            "but not response.patchType",
        );
        refused(
            true,
            |a| a["response"]["patchType"] = "JSONPatch".into(),
            "but not response.patch",
        );
        refused(
            false,
            |a| a["response"]["patch"] = "W10=".into(),
            "may not return response.patch",
        );
        refused(
            true,
            |a| {
                a["response"]["patch"] = "W10=".into();
                a["response"]["patchType"] = "Merge".into();
            },
            "invalid response.patchType of \"Merge\"",
        );
        refused(true, |a| *a = Value::Null, "couldn't decode");
    }
}
