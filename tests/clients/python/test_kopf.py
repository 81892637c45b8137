"""kopf, an operator framework: a definition, handlers, a finalizer and owned children."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

import kubernetes
from kubernetes.client.exceptions import ApiException

from server import Server

OPERATOR = os.path.join(os.path.dirname(__file__), "operator_for_kopf.py")
# kopf retries a failed handler after 60 s.
TIMEOUT_SECONDS = 120


@contextlib.contextmanager
def running_operator(kubeconfig):
    """Runs the operator in a process of its own; yields a function that ends it and returns its output."""
    # The kubernetes package reads KUBECONFIG when it is imported.
    command = [sys.executable, "-m", "kopf", "run", "--namespace=default", OPERATOR]
    process = subprocess.Popen(
        command,
        env={**os.environ, "KUBECONFIG": kubeconfig},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def stop():
        process.send_signal(signal.SIGTERM)
        return process.communicate(timeout=TIMEOUT_SECONDS)[0]

    try:
        yield stop
    except BaseException:
        print(stop())
        raise
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "copies.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "copies", "kind": "Copy"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


class Kopf(unittest.TestCase):
    def eventually(self, what, condition):
        """Waits until condition() returns something true, and returns that."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.05)
        self.fail(f"not within {TIMEOUT_SECONDS} s: {what}")

    def test_an_operator(self):
        server = self.enterContext(Server())
        api = kubernetes.config.new_client_from_config(server.kubeconfig)
        kubernetes.client.ApiextensionsV1Api(api).create_custom_resource_definition(definition())
        core = kubernetes.client.CoreV1Api(api)
        copies = kubernetes.client.CustomObjectsApi(api)
        place = ("example.com", "v1", "default", "copies")

        def child():
            try:
                return core.read_namespaced_config_map("original", "default")
            except ApiException as error:
                self.assertEqual(error.status, 404)

        with running_operator(server.kubeconfig) as stop:
            body = {"apiVersion": "example.com/v1", "kind": "Copy", "metadata": {"name": "original"}}
            copies.create_namespaced_custom_object(*place, {**body, "spec": {"text": "one"}})
            made = self.eventually("the child", child)
            self.assertEqual(made.metadata.owner_references[0].name, "original")
            copies.patch_namespaced_custom_object(*place, "original", {"spec": {"text": "two"}})
            self.eventually("the new text", lambda: child().data == {"text": "two"})
            self.eventually(
                "the status",
                lambda: copies.get_namespaced_custom_object(*place, "original")
                .get("status", {})
                .get("changed", {})
                .get("text")
                == "two",
            )
            copies.delete_namespaced_custom_object(*place, "original")
            self.eventually("the garbage collection of the child", lambda: child() is None)
            output = stop()
            self.assertIn("said good-bye to original", output)
            self.assertNotIn("failed with an exception", output)


if __name__ == "__main__":
    unittest.main()
