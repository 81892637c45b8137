"""Runs the watchet binary as a process of a test. WATCHET_TEST_BINARY names it; scripts/test-clients sets it."""

import os
import pathlib
import subprocess
import tempfile
import threading

START_TIMEOUT_SECONDS = 120


class Server:
    """A server on free ports with a data directory of its own. Use it as a context manager."""

    def __init__(self, *flags):
        binary = os.environ.get("WATCHET_TEST_BINARY")
        if not binary:
            raise RuntimeError("WATCHET_TEST_BINARY is not set; run the tests with scripts/test-clients")
        self._directory = tempfile.TemporaryDirectory()
        self.data_dir = pathlib.Path(self._directory.name) / "data"
        self._log = open(pathlib.Path(self._directory.name) / "log", "wb+")
        self._command = [
            binary,
            "serve",
            f"--data-dir={self.data_dir}",
            "--secure-port=0",
            "--insecure-port=auto",
            *flags,
        ]

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        killer = threading.Timer(START_TIMEOUT_SECONDS, self._process.kill)
        killer.start()
        self.insecure_url = None
        for line in self._process.stdout:
            if line.startswith("Serving http://"):
                self.insecure_url = line.split()[1]
            if line.lstrip().startswith("kubectl "):
                break
        else:
            self._log.seek(0)
            raise RuntimeError(f"the server did not start:\n{self._log.read().decode()}")
        killer.cancel()
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._directory.cleanup()

    @property
    def kubeconfig(self):
        """The path of the admin's kubeconfig."""
        return str(self.data_dir / "kubeconfig")
