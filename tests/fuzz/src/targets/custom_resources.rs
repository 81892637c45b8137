//! CustomResourceDefinitions of any content, through the server: validation, discovery, OpenAPI, and their objects.

use serde_json::Value;

use super::json_parts;
use super::server::{Server, assert_unchanged, escaped, with_server};

/// The number of pauses for the server to delete the objects of a definition.
const PAUSES: usize = 200;

/// The first part is a definition, the second an object of it, the third a patch of the object. Whatever definition is
/// accepted, discovery and OpenAPI remain readable.
pub(super) fn custom_resources(input: &[u8]) {
    let Some([definition, object, patch]) = json_parts::<3>(input) else {
        return;
    };
    with_server(|server| {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let created = server.send("POST", definitions, &definition);
        if created.code != 201 {
            return;
        }
        let created = created.json();
        let Some(name) = created["metadata"]["name"].as_str() else {
            return;
        };
        let uri = format!("{definitions}/{}", escaped(name));
        let got = server.call("GET", &uri, &[], Vec::new()).json();
        let updated = server.send("PUT", &uri, &got);
        if updated.code == 200 {
            assert_unchanged(&got["spec"], &updated.json()["spec"]);
        }
        let spec = &created["spec"];
        let text = |value: &Value| escaped(value.as_str().unwrap_or_default());
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let root = |version: &Value| format!("/apis/{group}/{}", text(&version["name"]));
        let path = |version: &Value| match spec["scope"].as_str() {
            Some("Namespaced") => format!("{}/namespaces/default/{plural}", root(version)),
            _ => format!("{}/{plural}", root(version)),
        };
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let stored = versions().find(|version| version["storage"] == true);
        let stored = stored.map(path).unwrap_or_default();
        for version in versions() {
            documents(server, &root(version));
            objects(server, [&path(version), &stored], &object, &patch);
        }
        server.delete(&uri);
        for _ in 0..PAUSES {
            if server.call("GET", &uri, &[], Vec::new()).code == 404 {
                break;
            }
            server.pause();
        }
    });
}

/// Reads discovery and OpenAPI of a group version.
fn documents(server: &Server, root: &str) {
    server.call("GET", root, &[], Vec::new());
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    server.call("GET", "/apis", &[("accept", aggregated)], Vec::new());
    let openapi = format!("/openapi/v3{root}");
    let document = server.call(
        "GET",
        &openapi,
        &[("accept", "application/json")],
        Vec::new(),
    );
    assert!(
        document.code != 200 || document.json().is_object(),
        "{openapi} is no JSON"
    );
    let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    server.call("GET", &openapi, &[("accept", protobuf)], Vec::new());
}

/// Creates, reads and changes an object at `path`; `stored` is the path of the version in which objects are stored.
fn objects(server: &Server, [path, stored]: [&str; 2], object: &Value, patch: &Value) {
    server.read(path);
    let created = server.send("POST", path, object);
    if created.code != 201 {
        return;
    }
    let created = created.json();
    let name = escaped(created["metadata"]["name"].as_str().unwrap_or_default());
    // The update uses the stored version. In another version a default can be pruned when the object is converted, so that each
    // update changes the object; kube-apiserver does the same.
    let in_stored = format!("{stored}/{name}");
    let got = server.call("GET", &in_stored, &[], Vec::new());
    if got.code == 200 {
        let updated = server.send("PUT", &in_stored, &got.json());
        if updated.code == 200 {
            assert_unchanged(&got.json(), &updated.json());
        }
    }
    let uri = format!("{path}/{name}");
    server.send("PUT", &uri, &created);
    server.read(&uri);
    server.read(&format!("{uri}/scale"));
    if !patch.is_null() {
        server.patch(&uri, patch);
        server.patch(&format!("{uri}/status"), patch);
    }
    server.delete(&uri);
}
