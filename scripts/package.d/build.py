"""The input of the packages: the program for one architecture, and the files that are the same for all."""

import dataclasses
import gzip
import hashlib
import io
import pathlib
import re
import shutil
import struct
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# ELF's machine number, and the names of the architecture: of the kernel, of Debian, of Node.js, of OCI images.
MACHINES = {
    62: ("x86_64", "amd64", "x64", "amd64"),
    183: ("aarch64", "arm64", "arm64", "arm64"),
}


class PackageError(Exception):
    """A package cannot be made."""


@dataclasses.dataclass
class Build:
    """A program and what the packages need to know about it."""

    binary: pathlib.Path
    version: str
    # The time of all files, in seconds since 1970.
    time: int
    # The level of compression, 1 to 9.
    level: int
    output: pathlib.Path
    # Completions and manual pages.
    help_files: pathlib.Path
    sbom: pathlib.Path | None
    data: bytes = b""
    machine: str = ""
    debian: str = ""
    node: str = ""
    oci: str = ""
    # The minor version of the newest interface of glibc 2 that it uses; None if it needs no library.
    glibc: int | None = None

    def __post_init__(self):
        self.data = self.binary.read_bytes()
        number = struct.unpack_from("<H", self.data, 18)[0] if self.data[:4] == b"\x7fELF" else 0
        if number not in MACHINES:
            raise PackageError(f"{self.binary} is not a program for x86_64 or aarch64: build one with cargo")
        self.machine, self.debian, self.node, self.oci = MACHINES[number]
        if self.is_dynamic():
            versions = re.findall(rb"\0GLIBC_2\.(\d+)", self.data)
            self.glibc = max((int(version) for version in versions), default=17)

    def is_dynamic(self):
        """Returns true if an interpreter loads the program (a program header PT_INTERP)."""
        (start,) = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        headers = (struct.unpack_from("<I", self.data, start + size * index)[0] for index in range(count))
        return 3 in headers

    def path(self, name):
        """Returns the path of an artifact."""
        return self.output / name

    def gzip(self, data):
        """Compresses without a time or a name."""
        return gzip.compress(data, self.level, mtime=0)


def read(path):
    """Reads a text of the source tree."""
    return (ROOT / path).read_text()


def digest(data):
    """Returns the SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def stripped(binary, directory):
    """Copies the program without debug information, if binutils is installed. Retains the symbols, which profiles need."""
    copy = directory / "watchet"
    shutil.copyfile(binary, copy)
    for tool in ("strip", "aarch64-linux-gnu-strip", "llvm-strip"):
        if shutil.which(tool) and subprocess.run([tool, "--strip-debug", copy], stderr=subprocess.DEVNULL).returncode == 0:
            break
    copy.chmod(0o755)
    return copy


class Tar:
    """An uncompressed tar archive in memory. All members have the same time and numeric owners, and no names."""

    def __init__(self, time):
        self._buffer = io.BytesIO()
        self._archive = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.USTAR_FORMAT)
        self._time = time

    def _add(self, name, kind, mode, data=b"", owner=0, link=""):
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.size, member.mtime = kind, mode, len(data), self._time
        member.uid = member.gid = owner
        member.linkname = link
        self._archive.addfile(member, io.BytesIO(data))

    def file(self, name, data, mode=0o644, owner=0):
        self._add(name, tarfile.REGTYPE, mode, data.encode() if isinstance(data, str) else data, owner)

    def directory(self, name, mode=0o755, owner=0):
        self._add(name, tarfile.DIRTYPE, mode, owner=owner)

    def link(self, name, target):
        self._add(name, tarfile.SYMTYPE, 0o777, link=target)

    def finish(self):
        """Returns the archive."""
        self._archive.close()
        return self._buffer.getvalue()
