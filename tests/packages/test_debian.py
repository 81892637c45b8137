"""The Debian package: installed by dpkg into a root directory of its own, and its systemd units."""

import json
import os

from harness import PackageTest, as_root, environment, eventually, free_port, is_served, package, run

ANALYZE = os.environ["WATCHET_TEST_SYSTEMD_ANALYZE"]
SOCKET_ACTIVATE = os.environ["WATCHET_TEST_SYSTEMD_SOCKET_ACTIVATE"]
UNITS = os.environ["WATCHET_TEST_SYSTEMD_UNITS"]


def dpkg(root, *arguments):
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    options = [f"--root={root}", "--force-script-chrootless", "--force-depends", "--log=/dev/null"]
    return run(*as_root(), "dpkg", *options, *arguments, env=environment(PATH=path))


class Debian(PackageTest):
    def setUp(self):
        super().setUp()
        self.root = self.directory / "root"
        for path in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (self.root / path).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        dpkg(self.root, "--install", package("watchet_*_amd64.deb"))
        self.binary = self.root / "usr/bin/watchet"

    def test_installed_server_serves_with_its_configuration(self):
        settings = (self.root / "etc/watchet/watchet.yaml").read_text()
        self.assertIn("\ndataDir: /var/lib/watchet\n", settings)
        ready = self.directory / "ready"
        process = self.start(
            self.binary, "serve", "--config", self.root / "etc/watchet/watchet.yaml", "--secure-port=0",
            f"--data-dir={self.directory / 'data'}", f"--ready-file={ready}",
        )
        eventually(ready.exists)
        self.check_server(json.loads(ready.read_text())["kubeconfig"])
        process.terminate()
        self.assertEqual(process.wait(), 0)

    def test_removal_retains_the_configuration_and_purge_deletes_it(self):
        settings = self.root / "etc/watchet/watchet.yaml"
        self.assertIn("watchet", dpkg(self.root, "--list"))
        dpkg(self.root, "--remove", "watchet")
        self.assertFalse(self.binary.exists())
        self.assertTrue(settings.exists())
        dpkg(self.root, "--purge", "watchet")
        self.assertFalse(settings.exists())

    def test_units_are_valid_and_hardened(self):
        units = self.directory / "units"
        units.mkdir()
        for name in ("watchet.service", "watchet.socket"):
            text = (self.root / "usr/lib/systemd/system" / name).read_text()
            (units / name).write_text(text.replace("/usr/bin/watchet", str(self.binary)))
        settings = environment(SYSTEMD_UNIT_PATH=f"{units}:{UNITS}")
        output = run(ANALYZE, "verify", "--man=no", *units.iterdir(), env=settings)
        self.assertNotIn("watchet", output)
        # 0 is no exposure and 100 all; a service without any hardening has 96.
        run(ANALYZE, "security", "--offline=yes", "--threshold=30", units / "watchet.service", env=settings)

    def test_service_manager_opens_the_port(self):
        port = free_port()
        data, ready = self.directory / "data", self.directory / "ready"
        self.start(
            SOCKET_ACTIVATE, "--listen", f"127.0.0.1:{port}", self.binary, "serve", f"--data-dir={data}", "--storage=memory",
            f"--ready-file={ready}", cwd=self.directory,
        )
        # The server starts at the first connection.
        eventually(lambda: is_served(f"https://127.0.0.1:{port}"))
        eventually(ready.exists)
        server = json.loads((data / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
        self.assertEqual(server, f"https://127.0.0.1:{port}")
        self.check_server(data / "kubeconfig")
