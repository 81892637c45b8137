"""The container image: read by skopeo, and run in its root directory as its user."""

import json
import os
import subprocess
import tarfile

from harness import PackageTest, as_root, as_user, eventually, free_port, is_served, package, run, unpack

SKOPEO = os.environ["WATCHET_TEST_SKOPEO"]
ETCD = os.environ["WATCHET_TEST_ETCD"]
USER = 65532


class Image(PackageTest):
    def setUp(self):
        super().setUp()
        self.archive = package("watchet-*-oci-amd64.tar")
        self.images = self.directory / "images"

    def skopeo(self, *arguments):
        return run(SKOPEO, *arguments)

    def unpack(self):
        """Unpacks the layer as a container runtime does, and returns its root directory and the configuration."""
        self.skopeo("--insecure-policy", "copy", f"oci-archive:{self.archive}", f"dir:{self.images}")
        manifest = json.loads((self.images / "manifest.json").read_text())

        def read(entry):
            return self.images / entry["digest"].removeprefix("sha256:")

        config = json.loads(read(manifest["config"]).read_text())
        root = self.directory / "root"
        root.mkdir()
        (layer,) = manifest["layers"]
        unpack(read(layer), root)
        self.addCleanup(subprocess.run, [*as_root(), "rm", "-rf", root], check=True)
        return root, config["config"]

    def test_skopeo_reads_both_formats(self):
        for kind in ("oci-archive", "docker-archive"):
            with self.subTest(kind):
                found = json.loads(self.skopeo("inspect", f"{kind}:{self.archive}"))
                self.assertEqual((found["Os"], found["Architecture"]), ("linux", "amd64"))
                self.assertEqual(len(found["Layers"]), 1)
                config = json.loads(self.skopeo("inspect", "--config", f"{kind}:{self.archive}"))["config"]
                self.assertEqual(config["User"], f"{USER}:{USER}")
                self.assertEqual(config["Volumes"], {"/data": {}})
                self.assertEqual(config["ExposedPorts"], {"6443/tcp": {}})

    def test_image_is_little_larger_than_the_program(self):
        with tarfile.open(package("watchet-*-linux-x86_64.tar.gz")) as archive:
            (program,) = [member.size for member in archive if member.name.endswith("/bin/watchet")]
        root, _ = self.unpack()
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and path.parent.name != "dev")
        self.assertLess(size, program + 6_000_000)

    def test_image_runs_as_its_user(self):
        root, config = self.unpack()
        self.assertEqual((root / "data").stat().st_mode & 0o7777, 0o700)
        process = self.start(*as_user(root, USER), *config["Entrypoint"], *config["Cmd"], "--secure-port=0")
        eventually(lambda: "kubectl get namespaces" in self.log())
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(run(*as_root(), "cat", root / "data/kubeconfig"))
        self.check_server(kubeconfig)
        process.terminate()
        self.assertEqual(process.wait(), 0)

    def test_program_resolves_names_without_modules_of_the_c_library(self):
        root, config = self.unpack()
        run(*as_root(), "tee", root / "etc/hosts", input="127.0.0.1 localhost\n")
        # A name service whose module is not in the image, as that of a desktop.
        services = "hosts: files mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] dns myhostname\n"
        run(*as_root(), "tee", root / "etc/nsswitch.conf", input=services)
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.start(
            ETCD, f"--data-dir={self.directory / 'etcd'}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            stdout=subprocess.DEVNULL,
        )
        eventually(lambda: is_served(client))
        for url in (client, client.replace("127.0.0.1", "localhost")):
            with self.subTest(url):
                data = f"/data/{url[7:10]}"
                ready = root / data[1:] / "ready"
                process = self.start(
                    *as_user(root, USER), *config["Entrypoint"], "serve", "--storage=etcd", f"--etcd-servers={url}",
                    f"--data-dir={data}", f"--ready-file={data}/ready", "--secure-port=0",
                )
                eventually(lambda: subprocess.run([*as_root(), "test", "-e", ready]).returncode == 0)
                process.terminate()
                self.assertEqual(process.wait(), 0)
