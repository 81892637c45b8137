"""The kubernetes package: typed and dynamic clients, and its watch that resumes by itself."""

import threading
import unittest

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

from server import Server

TIMEOUT_SECONDS = 120

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}
                        },
                    }
                },
            }
        ],
    },
}


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.api = config.new_client_from_config(cls.server.kubeconfig)
        cls.core = client.CoreV1Api(cls.api)

    def config_map(self, name, **data):
        metadata = client.V1ObjectMeta(name=name, labels={"test": self.id().split(".")[-1]})
        body = client.V1ConfigMap(metadata=metadata, data=data)
        return self.core.create_namespaced_config_map("default", body)

    def test_create_patch_list_delete(self):
        self.config_map("settings", colour="red")
        patched = self.core.patch_namespaced_config_map("settings", "default", {"data": {"size": "1"}})
        self.assertEqual(patched.data, {"colour": "red", "size": "1"})
        listed = self.core.list_namespaced_config_map("default", field_selector="metadata.name=settings")
        self.assertEqual([item.metadata.name for item in listed.items], ["settings"])
        self.core.delete_namespaced_config_map("settings", "default")
        with self.assertRaises(ApiException) as missing:
            self.core.read_namespaced_config_map("settings", "default")
        self.assertEqual((missing.exception.status, missing.exception.reason), (404, "Not Found"))

    def test_a_watch_resumes_where_it_ended(self):
        # A controller writes to the namespace, too.
        selector = "test=test_a_watch_resumes_where_it_ended"
        listed = self.core.list_namespaced_config_map("default")
        stream = watch.Watch().stream(
            self.core.list_namespaced_config_map,
            "default",
            resource_version=listed.metadata.resource_version,
            label_selector=selector,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        names = [f"watched-{number}" for number in range(20)]
        writer = threading.Thread(target=lambda: [self.config_map(name) for name in names])
        writer.start()
        seen = []
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == len(names):
                break
        writer.join()
        self.assertEqual(seen, [("ADDED", name) for name in names])
        self.config_map("between-the-watches")
        resumed = watch.Watch().stream(
            self.core.list_namespaced_config_map,
            "default",
            resource_version=event["object"].metadata.resource_version,
            label_selector=selector,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        self.assertEqual(next(resumed)["object"].metadata.name, "between-the-watches")

    def test_custom_resources(self):
        client.ApiextensionsV1Api(self.api).create_custom_resource_definition(WIDGETS)
        resources = dynamic.DynamicClient(self.api).resources
        widgets = resources.get(api_version="example.com/v1", kind="Widget")
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
        widgets.create(body=body, namespace="default")
        body["spec"]["size"] = 2
        applied = widgets.server_side_apply(
            body=body, namespace="default", field_manager="test", force_conflicts=True
        )
        self.assertEqual(applied.spec.size, 2)
        body["spec"]["size"] = "large"
        with self.assertRaises(ApiException) as invalid:
            widgets.replace(body={**body, "metadata": applied.metadata.to_dict()}, namespace="default")
        self.assertEqual(invalid.exception.status, 422)
        self.assertIn("spec.size", invalid.exception.body)


if __name__ == "__main__":
    unittest.main()
