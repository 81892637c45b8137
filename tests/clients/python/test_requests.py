"""The API as a program without a Kubernetes library uses it: requests, and urllib3 below it."""

import json
import unittest

import requests

from server import Server

TIMEOUT_SECONDS = 30


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--controllers=-namespace"))
        cls.base = f"{cls.server.insecure_url}/api/v1/namespaces/default/configmaps"

    def create(self, name, **data):
        body = {"metadata": {"name": name, "labels": {"test": self.id().split(".")[-1]}}, "data": data}
        response = requests.post(self.base, json=body, timeout=TIMEOUT_SECONDS)
        self.assertEqual(response.status_code, 201, response.text)
        return response.json()

    def watch(self, **query):
        """Opens a watch and returns an iterator over its decoded events."""
        query = {"watch": "true", "timeoutSeconds": TIMEOUT_SECONDS, **query}
        response = requests.get(self.base, params=query, stream=True, timeout=TIMEOUT_SECONDS)
        self.assertEqual(response.status_code, 200, response.text if not response.ok else "")
        self.addCleanup(response.close)
        self.encoding = response.headers.get("Content-Encoding")
        return (json.loads(line) for line in response.iter_lines(chunk_size=None) if line)

    def test_list_and_patch(self):
        self.create("patched", a="1")
        patch = requests.patch(
            f"{self.base}/patched",
            data=json.dumps({"data": {"b": "2"}}),
            headers={"Content-Type": "application/merge-patch+json"},
            timeout=TIMEOUT_SECONDS,
        )
        self.assertEqual(patch.json()["data"], {"a": "1", "b": "2"})
        query = {"labelSelector": "test=test_list_and_patch"}
        listed = requests.get(self.base, params=query, timeout=TIMEOUT_SECONDS).json()
        self.assertEqual([item["metadata"]["name"] for item in listed["items"]], ["patched"])

    def test_a_watch_resumes_where_it_ended(self):
        selector = {"labelSelector": "test=test_a_watch_resumes_where_it_ended"}
        first = self.create("first")
        events = self.watch(resourceVersion="0", **selector)
        self.assertEqual(next(events)["object"], first)
        second = self.create("second")
        event = next(events)
        self.assertEqual((event["type"], event["object"]), ("ADDED", second))
        events.close()
        third = self.create("third")
        resumed = self.watch(resourceVersion=second["metadata"]["resourceVersion"], **selector)
        self.assertEqual(next(resumed)["object"], third)

    def test_a_compressed_streaming_list_arrives_at_once(self):
        """urllib3 accepts gzip by default, as Go does: each event is readable before the next is sent."""
        created = self.create("compressed")
        events = self.watch(
            sendInitialEvents="true",
            allowWatchBookmarks="true",
            resourceVersionMatch="NotOlderThan",
            labelSelector="test=test_a_compressed_streaming_list_arrives_at_once",
        )
        self.assertEqual(self.encoding, "gzip")
        self.assertEqual(next(events)["object"], created)
        end = next(events)
        self.assertEqual(end["type"], "BOOKMARK")
        self.assertEqual(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true")
        second = self.create("compressed-2")
        self.assertEqual(next(events)["object"], second)

    def test_a_version_of_the_future_is_refused(self):
        query = {"resourceVersion": "999999999", "resourceVersionMatch": "Exact"}
        response = requests.get(self.base, params=query, timeout=TIMEOUT_SECONDS)
        self.assertEqual(response.status_code, 504)
        status = response.json()
        self.assertEqual((status["kind"], status["reason"]), ("Status", "Timeout"))
        self.assertEqual(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge")


if __name__ == "__main__":
    unittest.main()
