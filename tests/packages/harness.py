"""What the tests of the packages share: the files, commands, and temporary directories. scripts/test-packages starts them."""

import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse

PACKAGES = pathlib.Path(os.environ["WATCHET_PACKAGES"])
ROOT = pathlib.Path(os.environ["WATCHET_TEST_ROOT"])
KUBECTL = os.environ["WATCHET_TEST_KUBECTL"]
SECONDS_MAX = 60
PORTS = iter(random.sample(range(20000, 32000), 12000))


def package(pattern):
    """Returns the only package for this machine whose name matches."""
    found = sorted(PACKAGES.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"{pattern} matches {len(found)} files in {PACKAGES}: {found}")
    return found[0]


def environment(**changes):
    """Returns the environment without the settings of watchet and of the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WATCHET_")}
    return {**inherited, **changes}


def run(*command, status=0, **options):
    """Runs a command and returns its output. Fails with the output if the exit code is another one than `status`."""
    options.setdefault("env", environment())
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        **options,
    )
    if done.returncode != status:
        raise AssertionError(f"{command}: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def kubectl(kubeconfig, *arguments, **options):
    """Runs kubectl."""
    return run(KUBECTL, "--kubeconfig", kubeconfig, *arguments, **options)


def eventually(condition):
    """Waits until the condition is true; returns its value."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError("the condition is false for too long")
        time.sleep(0.01)


def is_served(url):
    """Returns true if a server accepts connections at the URL.

    A server that ends while this connects resets the connection or does not answer; later connections are refused.
    """
    address = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port), timeout=5).close()
    except (ConnectionError, TimeoutError):
        return False
    return True


def free_port():
    """Returns another port of 127.0.0.1 each time, on which nothing listens.

    It is below the ports that Linux gives to outgoing connections: one of them could take it before the server starts.
    """
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no free port")


class PackageTest(unittest.TestCase):
    """A test with a temporary directory and processes, which end with it."""

    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)

    def start(self, *command, **options):
        """Starts a process in a group of its own, which is killed after the test."""
        options.setdefault("env", environment())
        log = open(self.directory / "log", "ab+")
        self.addCleanup(log.close)
        options.setdefault("stdout", log)
        process = subprocess.Popen(
            [str(word) for word in command], stderr=log, start_new_session=True, **options
        )

        def end():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

        self.addCleanup(end)
        return process

    def log(self):
        """Returns what the processes have printed."""
        return (self.directory / "log").read_text()

    def check_server(self, kubeconfig):
        """Checks that the server of a kubeconfig serves kubectl."""
        kubectl(kubeconfig, "create", "configmap", "greeting", "--from-literal=hello=world")
        found = kubectl(kubeconfig, "get", "configmap", "greeting", "-o", "jsonpath={.data.hello}")
        self.assertEqual(found, "world")


def has_namespaces():
    """Returns true if this user, who is not root, may create user namespaces."""
    probe = ["unshare", "--map-root-user", "true"]
    return os.geteuid() != 0 and subprocess.run(probe, capture_output=True).returncode == 0


def as_root():
    """Returns the start of a command that may change the root directory, and owners of files."""
    if os.geteuid() == 0:
        return []
    if has_namespaces():
        return ["unshare", "--map-root-user"]
    return ["sudo", "--non-interactive"]


def as_user(root, user):
    """Returns the start of a command in the root directory `root` as a user and group with this number."""
    if has_namespaces():
        return ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", f"--root={root}", "--wd=/"]
    return [*as_root(), "chroot", f"--userspec={user}:{user}", "--groups=", str(root)]


def unpack(archive, root):
    """Unpacks an archive with its owners, or in a user namespace, which has only one, as the user of `as_user`."""
    owners = ["--no-same-owner"] if has_namespaces() else ["--same-owner"]
    run(*as_root(), "tar", "--extract", "--numeric-owner", *owners, "--preserve-permissions", "--file", archive, "--directory", root)
    # A container runtime adds the devices, from which a static program reads random bytes. A user namespace may not make devices.
    run(*as_root(), "mkdir", root / "dev")
    for device in ("random", "urandom"):
        run(*as_root(), "dd", "if=/dev/urandom", f"of={root / 'dev' / device}", "bs=1M", "count=1")
