"""The packages for arm64, if there are any: the architecture in their metadata, and the program in QEMU's user mode."""

import json
import os
import shutil
import struct
import subprocess
import tarfile
import unittest
import zipfile

from harness import PACKAGES, SECONDS_MAX, PackageTest, eventually, package, run

SKOPEO = os.environ["WATCHET_TEST_SKOPEO"]
# The e_machine of ELF.
AARCH64 = 183
# Of most kernels, and of those that are configured for large pages.
PAGE_SIZES = (4 << 10, 64 << 10)


def machine(program):
    """Returns the e_machine of an ELF program."""
    return struct.unpack_from("<H", program, 18)[0]


@unittest.skipUnless(list(PACKAGES.glob("*aarch64*")), "scripts/package has built no program for arm64")
class Arm64(PackageTest):
    def unpack(self):
        with tarfile.open(package("watchet-*-linux-aarch64.tar.gz")) as archive:
            archive.extractall(self.directory, filter="fully_trusted")
        (root,) = self.directory.glob("watchet-*")
        return root / "bin/watchet"

    def test_program_serves_with_pages_of_each_size(self):
        emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
        self.assertTrue(emulator, "the program for arm64 runs in QEMU: install qemu-user-static")
        program = self.unpack()
        for size in PAGE_SIZES:
            with self.subTest(page_size=size):
                ready, data = (self.directory / f"{name}-{size}" for name in ("ready", "data"))
                emulated = [emulator, "-p", size, program, "serve"]
                process = self.start(
                    *emulated, "--secure-port=0", f"--data-dir={data}", f"--ready-file={ready}", cwd=self.directory
                )
                eventually(lambda: ready.exists() or self.assert_runs(process))
                self.check_server(json.loads(ready.read_text())["kubeconfig"])
                process.terminate()
                self.assertEqual(process.wait(timeout=SECONDS_MAX), 0, self.log())
        # QEMU 9 and later ignore the option, with a warning.
        self.assertNotIn("page size option", self.log())

    def assert_runs(self, process):
        self.assertIsNone(process.poll(), self.log())

    def test_packages_are_for_arm64(self):
        deb = package("watchet_*_arm64.deb")
        self.assertEqual(run("dpkg-deb", "--field", deb, "Architecture"), "arm64\n")
        archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, check=True)
        (self.directory / "deb.tar").write_bytes(archive.stdout)
        with tarfile.open(self.directory / "deb.tar") as files:
            self.assertEqual(machine(files.extractfile("./usr/bin/watchet").read()), AARCH64)
        with zipfile.ZipFile(package("watchet-*-py3-none-*_aarch64.whl")) as files:
            (name,) = [name for name in files.namelist() if name.endswith("scripts/watchet")]
            self.assertEqual(machine(files.read(name)), AARCH64)
        with tarfile.open(package("watchet-?.*.tgz")) as files:
            manifest = json.load(files.extractfile("package/package.json"))
            self.assertEqual(sorted(manifest["cpu"]), ["arm64", "x64"])
            self.assertEqual(machine(files.extractfile("package/bin/linux-arm64/watchet").read()), AARCH64)

    def test_image_is_for_arm64(self):
        image = package("watchet-*-oci-arm64.tar")
        for kind in ("oci-archive", "docker-archive"):
            found = json.loads(run(SKOPEO, "--override-arch=arm64", "inspect", f"{kind}:{image}"))
            self.assertEqual((found["Os"], found["Architecture"]), ("linux", "arm64"))
        images = self.directory / "images"
        run(SKOPEO, "--insecure-policy", "--override-arch=arm64", "copy", f"oci-archive:{image}", f"dir:{images}")
        (layer,) = json.loads((images / "manifest.json").read_text())["layers"]
        with tarfile.open(images / layer["digest"].removeprefix("sha256:")) as files:
            (name,) = [name for name in files.getnames() if name.endswith("bin/watchet")]
            self.assertEqual(machine(files.extractfile(name).read()), AARCH64)
