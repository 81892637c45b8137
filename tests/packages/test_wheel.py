"""The Python wheel: installed by pip into a virtual environment, and its pytest plugin with a real pytest."""

import base64
import csv
import hashlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import zipfile

from harness import PackageTest, environment, eventually, is_served, package, run

PYTHON_PACKAGES = os.environ["WATCHET_TEST_PYTHON_PACKAGES"]

TESTS = """
import json
import pathlib
import subprocess

import kubernetes
import pytest

seen = []


def test_kubernetes_client(watchet):
    api = kubernetes.client.CoreV1Api(watchet.client())
    api.create_namespaced_config_map("default", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert api.read_namespaced_config_map("a", "default").data == {"k": "v"}
    seen.append(watchet.pid)


def test_has_a_server_of_its_own(watchet):
    api = kubernetes.client.CoreV1Api(watchet.client())
    with pytest.raises(kubernetes.client.ApiException):
        api.read_namespaced_config_map("a", "default")
    assert watchet.pid not in seen


def test_namespace(watchet, watchet_namespace):
    found = watchet.request("GET", f"/api/v1/namespaces/{watchet_namespace}")
    assert found["status"]["phase"] == "Active"
    assert pathlib.Path(watchet.kubeconfig).exists() and watchet.url.startswith("https://")
"""

SHARED = """
seen = set()


def test_a(watchet, watchet_namespace):
    seen.add((watchet.pid, watchet_namespace))


def test_b(watchet, watchet_namespace):
    seen.add((watchet.pid, watchet_namespace))
    assert len({pid for pid, _ in seen}) == 1
    assert len({namespace for _, namespace in seen}) == 2
"""

ENDLESS = """
import json
import pathlib
import time


def test_never_ends(watchet):
    pathlib.Path("started").write_text(json.dumps({"url": watchet.url, "pid": watchet.pid}))
    time.sleep(600)
"""


class Wheel(PackageTest):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.venv = pathlib.Path(temporary.name) / "venv"
        run(sys.executable, "-m", "venv", "--without-pip", cls.venv)
        cls.python = cls.venv / "bin/python"
        wheel = package("watchet-*_x86_64.whl")
        run(
            sys.executable, "-m", "pip", "--python", cls.python, "install", "--no-index", "--no-deps", wheel,
            env=environment(PYTHONPATH=PYTHON_PACKAGES),
        )
        # pytest and the package kubernetes, without a second installation.
        (site,) = cls.venv.glob("lib/python*/site-packages")
        (site / "others.pth").write_text(PYTHON_PACKAGES + "\n")

    def pytest(self, text, *arguments, status=0):
        (self.directory / "test_example.py").write_text(text)
        return run(self.python, "-m", "pytest", "-p", "no:cacheprovider", *arguments, cwd=self.directory, status=status)

    def test_record_has_the_digest_of_each_file(self):
        with zipfile.ZipFile(package("watchet-*_x86_64.whl")) as wheel:
            (record,) = [name for name in wheel.namelist() if name.endswith("/RECORD")]
            rows = list(csv.reader(wheel.read(record).decode().splitlines()))
            self.assertEqual({name for name, *_ in rows}, set(wheel.namelist()))
            for name, digest, size in rows:
                if name != record:
                    data = wheel.read(name)
                    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, size), (f"sha256={found}", str(len(data))))

    def test_program_and_module_run(self):
        version = run(self.venv / "bin/watchet", "--version")
        self.assertRegex(version, r"^watchet \d+\.\d+\.\d+\n$")
        self.assertEqual(run(self.python, "-m", "watchet", "--version"), version)

    def test_fixture_starts_a_server_per_test(self):
        output = self.pytest(TESTS, "--durations=0", "-vv")
        self.assertIn("3 passed", output)

    def test_scope_session_shares_the_server(self):
        self.assertIn("2 passed", self.pytest(SHARED, "--watchet-scope=session"))
        (self.directory / "pytest.ini").write_text("[pytest]\nwatchet_scope = module\n")
        self.assertIn("2 passed", self.pytest(SHARED))
        self.assertIn("1 failed, 1 passed", self.pytest(SHARED, "--watchet-scope=function", status=1))

    def test_flags_reach_the_server_and_its_errors_the_user(self):
        (self.directory / "pytest.ini").write_text("[pytest]\nwatchet_flags =\n    --storage=paper\n")
        output = self.pytest(TESTS, status=1)
        self.assertIn("watchet exited with code 2 before it was ready", output)
        self.assertIn('--storage "paper"', output)

    def test_server_is_a_context_manager(self):
        script = """
import watchet
with watchet.Server() as server:
    assert server.request("GET", "/version")["minor"]
    directory = server.directory
    try:
        server.request("GET", "/api/v1/namespaces/missing")
    except OSError as error:
        assert "404" in str(error)
    else:
        raise AssertionError("no error")
assert not directory.exists()
"""
        run(self.python, "-c", script)

    def test_killed_pytest_leaves_no_server_behind(self):
        (self.directory / "test_example.py").write_text(ENDLESS)
        process = self.start(self.python, "-m", "pytest", "-p", "no:cacheprovider", cwd=self.directory)
        started = self.directory / "started"
        eventually(lambda: started.exists() and started.read_text())
        url = json.loads(started.read_text())["url"]
        self.assertTrue(is_served(url))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not is_served(url))
