"""The tarball of the program, the Python wheel, the npm package and the Helm chart."""

import base64
import hashlib
import io
import json
import time
import zipfile

from build import ROOT, Tar, digest, read


def tarball(build):
    """watchet-VERSION-linux-MACHINE.tar.gz: the program, completions, manual pages, configuration, unit files."""
    name = f"watchet-{build.version}-linux-{build.machine}"
    tar = Tar(build.time)
    tar.file(f"{name}/bin/watchet", build.data, 0o755)
    for path, place in installed_help(build):
        tar.file(f"{name}/share/{place}", path.read_bytes())
    for path in ("LICENSE", "README.md", "CHANGELOG.md", "config/watchet.yaml"):
        tar.file(f"{name}/{path}", read(path))
    for unit in ("watchet.service", "watchet.socket"):
        tar.file(f"{name}/config/systemd/{unit}", read(f"config/systemd/{unit}"))
    if build.sbom:
        tar.file(f"{name}/{build.sbom.name}", build.sbom.read_bytes())
    path = build.path(f"{name}.tar.gz")
    path.write_bytes(build.gzip(tar.finish()))
    return path


def installed_help(build, zsh="site-functions"):
    """Returns the completions and manual pages, each with its place below /usr/share or /usr/local/share. `zsh` is the
    directory that the zsh of the system reads."""
    places = [
        (build.help_files / "watchet.bash", "bash-completion/completions/watchet"),
        (build.help_files / "_watchet", f"zsh/{zsh}/_watchet"),
        (build.help_files / "watchet.fish", "fish/vendor_completions.d/watchet.fish"),
    ]
    pages = sorted((build.help_files / "man").iterdir())
    return places + [(page, f"man/man1/{page.name}") for page in pages]


def wheel_tags(build):
    """Returns the platform tags (PEP 600, PEP 656) of the wheel. A program without libraries runs with any C library."""
    if build.glibc is None:
        return [f"{libc}_{build.machine}" for libc in ("manylinux_2_17", "manylinux2014", "musllinux_1_1")]
    return [f"manylinux_2_{build.glibc}_{build.machine}"]


def wheel(build):
    """watchet-VERSION-py3-none-PLATFORM.whl: the program, the module `watchet` with its pytest plugin."""
    tags = wheel_tags(build)
    info = f"watchet-{build.version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        "Name: watchet",
        f"Version: {build.version}",
        "Summary: A Kubernetes-compatible API server for tests, with a pytest fixture",
        "License: Apache-2.0",
        "Keywords: kubernetes,apiserver,pytest,testing,operator",
        "Classifier: Framework :: Pytest",
        "Classifier: License :: OSI Approved :: Apache Software License",
        "Classifier: Operating System :: POSIX :: Linux",
        "Requires-Python: >=3.9",
        "Provides-Extra: kubernetes",
        "Requires-Dist: kubernetes; extra == 'kubernetes'",
        "Description-Content-Type: text/markdown",
        "",
        read("packages/python/README.md"),
    ]
    about = [
        "Wheel-Version: 1.0",
        "Generator: watchet scripts/package",
        "Root-Is-Purelib: false",
        *[f"Tag: py3-none-{tag}" for tag in tags],
        "",
    ]
    package = ROOT / "packages/python/watchet"
    files = [(f"watchet/{path.name}", path.read_bytes(), 0o644) for path in sorted(package.glob("*.py*")) if path.is_file()]
    files += [
        ("watchet/py.typed", b"", 0o644),
        (f"watchet-{build.version}.data/scripts/watchet", build.data, 0o755),
        (f"{info}/METADATA", "\n".join(metadata).encode(), 0o644),
        (f"{info}/WHEEL", "\n".join(about).encode(), 0o644),
        (f"{info}/entry_points.txt", b"[pytest11]\nwatchet = watchet.pytest_plugin\n", 0o644),
        (f"{info}/licenses/LICENSE", read("LICENSE").encode(), 0o644),
    ]
    files = list({name: (name, data, mode) for name, data, mode in files}.values())
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={record_digest(data)},{len(data)}" for name, data, _ in files]
    files.append((record, "\n".join([*lines, f"{record},,", ""]).encode(), 0o644))
    # A zip archive has no time before 1980.
    moment = time.gmtime(max(build.time, 315532800))[:6]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=build.level) as archive:
        for name, data, mode in files:
            member = zipfile.ZipInfo(name, moment)
            member.create_system = 3
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)
    path = build.path(f"watchet-{build.version}-py3-none-{'.'.join(tags)}.whl")
    path.write_bytes(buffer.getvalue())
    return path


def record_digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def npm(builds):
    """watchet-VERSION.tgz: the programs of all architectures, a launcher, and the module `watchet/testing`."""
    build = builds[0]
    manifest = json.loads(read("packages/node/package.json"))
    manifest["version"] = build.version
    manifest["cpu"] = [each.node for each in builds]
    tar = Tar(build.time)
    tar.file("package/package.json", json.dumps(manifest, indent=2) + "\n")
    for name in ("README.md", "binary.js", "testing.js", "testing.d.ts"):
        tar.file(f"package/{name}", read(f"packages/node/{name}"))
    tar.file("package/LICENSE", read("LICENSE"))
    tar.file("package/bin/watchet.js", read("packages/node/bin/watchet.js"), 0o755)
    for each in builds:
        tar.file(f"package/bin/linux-{each.node}/watchet", each.data, 0o755)
    path = build.path(f"watchet-{build.version}.tgz")
    path.write_bytes(build.gzip(tar.finish()))
    return path


def chart(build):
    """watchet-chart-VERSION.tgz: the Helm chart in config/helm/watchet."""
    directory = ROOT / "config/helm/watchet"
    tar = Tar(build.time)
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        text = path.read_text()
        if path.name == "Chart.yaml":
            text = text.replace("0.0.0", build.version)
        tar.file(f"watchet/{path.relative_to(directory)}", text)
    path = build.path(f"watchet-chart-{build.version}.tgz")
    path.write_bytes(build.gzip(tar.finish()))
    return path


def checksums(output, paths):
    """SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [f"{digest(path.read_bytes())}  {path.name}\n" for path in sorted(paths)]
    (output / "SHA256SUMS").write_text("".join(lines))
