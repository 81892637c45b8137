"""The Debian package, made by dpkg-deb."""

import os
import shutil
import subprocess
import tempfile
import pathlib

from archives import installed_help
from build import ROOT, PackageError, read


def deb(build):
    """watchet_VERSION_ARCHITECTURE.deb: the program, the systemd units, /etc/watchet/watchet.yaml, help files."""
    if not shutil.which("dpkg-deb"):
        raise PackageError("the Debian package needs dpkg-deb: install the package dpkg")
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary) / "root"
        add(build, root)
        path = build.path(f"watchet_{build.version}_{build.debian}.deb")
        compression = ["-Zgzip", "-z1"] if build.level == 1 else ["-Zxz", "--threads-max=1"]
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", *compression, "--build", root, path],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(build.time)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return path


def add(build, root):
    """Writes the files of the package, and its control files, below root."""

    def write(name, data, mode=0o644):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        path.chmod(mode)

    write("usr/bin/watchet", build.data, 0o755)
    for unit in ("watchet.service", "watchet.socket"):
        write(f"usr/lib/systemd/system/{unit}", read(f"config/systemd/{unit}"))
    settings = read("config/watchet.yaml")
    changed = settings.replace("\ndataDir: ./.watchet\n", "\ndataDir: /var/lib/watchet\n")
    if changed == settings:
        raise PackageError("config/watchet.yaml has no line `dataDir: ./.watchet`, which the Debian package replaces")
    write("etc/watchet/watchet.yaml", changed)
    for path, place in installed_help(build, zsh="vendor-completions"):
        is_page = place.startswith("man/")
        data = path.read_bytes()
        write(f"usr/share/{place}.gz" if is_page else f"usr/share/{place}", build.gzip(data) if is_page else data)
    documents = "usr/share/doc/watchet"
    write(f"{documents}/copyright", read("packages/debian/copyright"))
    write(f"{documents}/changelog.gz", build.gzip((ROOT / "CHANGELOG.md").read_bytes()))
    if build.sbom:
        write(f"{documents}/{build.sbom.name}", build.sbom.read_bytes())
    installed = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    depends = "" if build.glibc is None else f"Depends: libc6 (>= 2.{build.glibc}), libgcc-s1\n"
    control = read("packages/debian/control")
    for name, value in {
        "VERSION": build.version,
        "ARCHITECTURE": build.debian,
        "INSTALLED_SIZE": str(-(-installed // 1024)),
        "DEPENDS": depends,
    }.items():
        control = control.replace(f"@{name}@", value)
    write("DEBIAN/control", control)
    write("DEBIAN/conffiles", "/etc/watchet/watchet.yaml\n")
    for script in ("postinst", "prerm", "postrm"):
        write(f"DEBIAN/{script}", read(f"packages/debian/{script}"), 0o755)
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (build.time, build.time))
