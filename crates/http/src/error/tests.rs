//! Tests of the mapping from errors to the `Status` JSON.

use super::*;
use watchet_api::{ContinueToken, ResourceVersion};

/// Compares `code reason | message | details` of the status.
fn check(error: impl Into<HttpError>, expect: &str) {
    let status = error.into().status();
    let details = status.details.as_ref();
    let details = details.map_or("-".to_owned(), |d| serde_json::to_string(d).unwrap());
    let actual = format!(
        "{} {} | {} | {details}",
        status.code, status.reason, status.message
    );
    assert_eq!(actual, expect);
    assert_eq!(status.status, "Failure");
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn cause(field: &str, message: &str) -> StatusCause {
    StatusCause {
        reason: text("FieldValueInvalid"),
        message: text(message),
        field: text(field),
    }
}

#[test]
fn failures_about_an_object() {
    check(
        ApiError::NotFound {
            resource: text("deployments.apps"),
            name: text("x"),
        },
        r#"404 NotFound | deployments.apps "x" not found | {"name":"x","group":"apps","kind":"deployments"}"#,
    );
    check(
        ApiError::AlreadyExists {
            resource: text("pods"),
            name: text("x"),
            being_deleted: true,
        },
        r#"409 AlreadyExists | object is being deleted: pods "x" already exists | {"name":"x","kind":"pods"}"#,
    );
    check(
        ApiError::NamesExhausted {
            resource: text("pods"),
            base: text("x-abcde"),
        },
        r#"409 AlreadyExists | pods "x-abcde" already exists, the server was not able to generate a unique name for the object | {"name":"x-abcde","kind":"pods","retryAfterSeconds":1}"#,
    );
    check(
        ApiError::Conflict {
            resource: text("pods"),
            name: text("x"),
            detail: text("the object has been modified"),
        },
        r#"409 Conflict | Operation cannot be fulfilled on pods "x": the object has been modified | {"name":"x","kind":"pods"}"#,
    );
    check(
        ApiError::Forbidden {
            resource: text("pods"),
            name: text(""),
            detail: text("no"),
            causes: vec![],
        },
        r#"403 Forbidden | pods is forbidden: no | {"kind":"pods"}"#,
    );
    check(
        ApiError::Invalid {
            group: text("apps"),
            kind: text("Deployment"),
            name: text("x"),
            causes: vec![cause("spec.replicas", "must be positive")],
        },
        r#"422 Invalid | Deployment.apps "x" is invalid: spec.replicas: must be positive | {"name":"x","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"must be positive","field":"spec.replicas"}]}"#,
    );
    check(
        ApiError::Invalid {
            group: text(""),
            kind: text("Pod"),
            name: text("x"),
            causes: vec![cause("a", "1"), cause("", "2")],
        },
        r#"422 Invalid | Pod "x" is invalid: [a: 1, 2] | {"name":"x","kind":"Pod","causes":[{"reason":"FieldValueInvalid","message":"1","field":"a"},{"reason":"FieldValueInvalid","message":"2"}]}"#,
    );
}

#[test]
fn failures_of_reads() {
    let requested = ResourceVersion::new(9);
    let current = ResourceVersion::new(5);
    check(
        ReadError::TooLargeResourceVersion {
            requested,
            current,
            retry_after: Duration::from_secs(1),
        },
        r#"504 Timeout | Timeout: Too large resource version: 9, current: 5 | {"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}"#,
    );
    check(
        ReadError::Storage(StorageError::Future { requested, current }),
        r#"504 Timeout | Timeout: Too large resource version: 9, current: 5 | {"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}"#,
    );
    check(
        ReadError::NotReady {
            detail: text("etcd is away"),
            retry_after: Duration::from_millis(1500),
        },
        r#"429 TooManyRequests | storage is (re)initializing: etcd is away | {"retryAfterSeconds":2}"#,
    );
    check(
        ReadError::Expired {
            requested: current,
            oldest: requested,
            fresh_token: None,
        },
        "410 Expired | the resource version 5 of the list is too old: the oldest that can be listed is 9 | -",
    );
    check(
        ReadError::Stopped,
        r#"503 ServiceUnavailable | the server is shutting down | {"retryAfterSeconds":1}"#,
    );
    check(
        ReadError::from(ContinueToken::decode("%%").unwrap_err()),
        "400 BadRequest | invalid continue token: continue key is not valid: not base64 | -",
    );
    check(
        ReadError::VersionWithContinue,
        "400 BadRequest | specifying resource version is not allowed when using continue | -",
    );
    check(
        ReadError::Undecodable(text("undecodable object a")),
        r#"500 InternalError | Internal error occurred: undecodable object a | {"causes":[{"message":"undecodable object a"}]}"#,
    );
}

/// A watch reports the same failures differently.
#[test]
fn failures_of_watches() {
    let actual = |error: ReadError| {
        let status = watch_status(&error);
        format!("{} {} | {}", status.code, status.reason, status.message)
    };
    let expired = ReadError::Expired {
        requested: ResourceVersion::new(5),
        oldest: ResourceVersion::new(9),
        fresh_token: None,
    };
    assert_eq!(
        actual(expired),
        "410 Expired | too old resource version: 5 (9)"
    );
    let undecodable = ReadError::Undecodable(text("undecodable object a"));
    assert_eq!(
        actual(undecodable),
        "500 StorageReadError | undecodable object a"
    );
    let stopped = "503 ServiceUnavailable | the server is shutting down";
    assert_eq!(actual(ReadError::Stopped), stopped);
}

#[test]
fn a_list_of_corrupt_objects_names_them() {
    let resources = crate::test_objects::pods();
    let deployments = Resource {
        group: text("apps"),
        plural: text("deployments"),
        ..(*resources).clone()
    };
    let key = |name| StorageKey::new(&format!("/deployments/ns/{name}")).unwrap();
    let mut corrupt = CorruptObjects {
        objects: vec![(key("a"), text("no JSON"))],
        truncated: false,
    };
    let about = |corrupt: &CorruptObjects| {
        let error = HttpError::from(ReadError::Corrupt(corrupt.clone()));
        error.about(Verb::List, &deployments)
    };
    check(
        about(&corrupt),
        r#"500 StorageReadError | failed to read one or more deployments.apps from the storage | {"name":"list","group":"apps","kind":"deployments","causes":[{"reason":"UnexpectedServerResponse","message":"no JSON","field":"/deployments/ns/a"}]}"#,
    );
    corrupt.truncated = true;
    let causes = about(&corrupt).status().details.unwrap().causes;
    assert_eq!(causes[1].reason, "FieldValueTooMany");
    assert_eq!(causes[1].message, "too many errors, the list is truncated");
}

#[test]
fn an_expired_page_has_a_token_to_continue_with() {
    let error = ReadError::Expired {
        requested: ResourceVersion::new(5),
        oldest: ResourceVersion::new(9),
        fresh_token: Some(text("abc")),
    };
    let status = read_status(&error);
    assert_eq!((status.code, &*status.reason), (410, "Expired"));
    assert_eq!(status.metadata["continue"], "abc");
}

#[test]
fn failures_of_storage() {
    let unavailable = ApiError::Storage(StorageError::Unavailable(text("refused")));
    check(
        unavailable,
        r#"500 ServerTimeout | storage is unavailable: refused | {"retryAfterSeconds":2}"#,
    );
    let away = || StorageError::Unavailable(text("refused"));
    for error in [ApiError::Storage(away()), ReadError::Storage(away()).into()] {
        let pods = crate::test_objects::pods();
        check(
            HttpError::from(error).about(Verb::List, &pods),
            r#"500 ServerTimeout | the list operation against pods could not be completed at this time, please try again | {"name":"list","kind":"pods","retryAfterSeconds":2}"#,
        );
    }
    // Without a time to retry, after which client-go would repeat the write by itself.
    let unknown = ApiError::Storage(StorageError::OutcomeUnknown(text("connection lost")));
    check(
        HttpError::from(unknown).about(Verb::Create, &crate::test_objects::pods()),
        "500  | the outcome of the write is unknown: connection lost; check whether the request was executed before you repeat it | -",
    );
    let compacted = ApiError::Storage(StorageError::Compacted {
        requested: ResourceVersion::new(1),
        compacted: ResourceVersion::new(2),
    });
    assert_eq!(HttpError::from(compacted).status().code, 410);
    let corrupt = ApiError::Storage(StorageError::Corrupt(text("page 3")));
    check(
        corrupt,
        r#"500 InternalError | Internal error occurred: storage is corrupt: page 3 | {"causes":[{"message":"storage is corrupt: page 3"}]}"#,
    );
}

#[test]
fn failures_of_the_http_layer() {
    check(
        HttpError::NoSuchPath,
        "404 NotFound | the server could not find the requested resource | {}",
    );
    check(
        HttpError::MethodNotAllowed,
        "405 MethodNotAllowed | the server does not allow this method on the requested resource | {}",
    );
    check(
        HttpError::TooManyRequests,
        r#"429 TooManyRequests | too many requests are in progress, please try again later | {"retryAfterSeconds":1}"#,
    );
    check(
        HttpError::ShuttingDown,
        r#"429 TooManyRequests | the server is shutting down, please try again later | {"retryAfterSeconds":1}"#,
    );
    check(
        HttpError::Timeout(Duration::from_secs(34)),
        "504 Timeout | Timeout: the request was not completed within 34s | {}",
    );
    check(
        HttpError::InvalidOptions {
            kind: "ListOptions",
            causes: vec![cause("resourceVersionMatch", "no")],
        },
        r#"422 Invalid | ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: no | {"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueInvalid","message":"no","field":"resourceVersionMatch"}]}"#,
    );
    for (error, code) in [
        (ApiError::BadRequest(text("x")), 400),
        (ApiError::Unprocessable(text("x")), 422),
        (ApiError::TooLarge(text("x")), 413),
        (ApiError::MethodNotAllowed(text("x")), 405),
        (ApiError::Timeout(text("x")), 504),
    ] {
        assert_eq!(HttpError::from(error).status().code, code);
    }
}
