"""A watchet server as a child process, with a data directory of its own."""

from __future__ import annotations

import base64
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.parse
from collections.abc import Iterable
from typing import Any

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10


class StartError(RuntimeError):
    """The server did not become ready. The message has its log."""


def binary() -> str:
    """Returns the path of the program: what WATCHET_BINARY names, or the one that this package installed."""
    if given := os.environ.get("WATCHET_BINARY"):
        return given
    package = pathlib.Path(__file__).resolve().parent
    directories = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", f"{os.name}_user"),
        # Beside the interpreter of a virtual environment, and below the directory of `pip install --target`.
        pathlib.Path(sys.executable).parent,
        package.parent / "bin",
    ]
    for directory in directories:
        candidate = pathlib.Path(directory) / "watchet"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    if found := shutil.which("watchet"):
        return found
    looked = ", ".join(str(directory) for directory in directories)
    raise FileNotFoundError(f"no program watchet in {looked} or PATH: install the package again, or set WATCHET_BINARY")


class Server:
    """A server on a free port that stores objects in memory. Use it as a context manager.

    `flags` are further flags of `watchet serve`. The data directory (certificates, kubeconfig, log) is a temporary one
    unless `directory` names one. The server ends when this process ends, even if it is killed.
    """

    def __init__(self, flags: Iterable[str] = (), directory: str | os.PathLike[str] | None = None):
        self._flags = list(flags)
        self._given = directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._context: ssl.SSLContext | None = None
        self.directory = pathlib.Path()
        self.url = ""
        self.kubeconfig = ""

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process ID of the server."""
        if self._process is None:
            raise RuntimeError("the server is not running: call start() first")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has logged."""
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Starts the server and returns when it is ready.

        Raises StartError if it does not become ready.
        """
        if self._given is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="watchet-")
            self.directory = pathlib.Path(self._temporary.name)
        else:
            self.directory = pathlib.Path(self._given)
            self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready"
        # The file of a server that was killed does not count.
        ready.unlink(missing_ok=True)
        command = [
            binary(),
            "serve",
            "--storage=memory",
            "--secure-port=0",
            f"--data-dir={self.directory / 'data'}",
            f"--ready-file={ready}",
            f"--exit-with-parent={os.getpid()}",
            *self._flags,
        ]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("WATCHET_")}
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )
        try:
            content = self._wait_until_ready(ready)
        except BaseException:
            self.stop()
            raise
        self.url = content["url"]
        self.kubeconfig = content["kubeconfig"]

    def _wait_until_ready(self, ready: pathlib.Path) -> dict[str, Any]:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return json.loads(ready.read_bytes())
            except FileNotFoundError:
                pass
            code = self._process.poll()
            if code is not None:
                raise StartError(f"watchet exited with code {code} before it was ready:\n{self.log}")
            if time.monotonic() > deadline:
                raise StartError(f"watchet is not ready after {START_SECONDS_MAX} s:\n{self.log}")
            time.sleep(0.002)

    def stop(self) -> None:
        """Ends the server and deletes its temporary directory. Does nothing if it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._context = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def client(self) -> Any:
        """Returns a new ApiClient of the package `kubernetes`, which must be installed, as the administrator."""
        from kubernetes import config

        return config.new_client_from_config(config_file=self.kubeconfig)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request as the administrator, and returns the decoded JSON of the response. Needs no other package.

        Raises OSError if the status is 400 or more.
        """
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=self._tls(), timeout=60
        )
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise OSError(f"{method} {path}: {response.status}: {text}")
        return json.loads(text)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            # The kubeconfig of watchet is JSON, which is a subset of YAML.
            kubeconfig = json.loads(pathlib.Path(self.kubeconfig).read_text())
            cluster = kubeconfig["clusters"][0]["cluster"]
            user = kubeconfig["users"][0]["user"]
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            self._context = ssl.create_default_context(cadata=authority)
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(base64.b64decode(user["client-key-data"]))
                pair.flush()
                self._context.load_cert_chain(pair.name)
        return self._context
