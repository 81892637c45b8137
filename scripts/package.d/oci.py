"""The container image: an archive that is an OCI image layout and can also be loaded by `docker load`."""

import json
import pathlib
import re
import subprocess
import time

from build import Tar, digest

USER = 65532
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def image(build):
    """watchet-VERSION-oci-ARCHITECTURE.tar: one layer with the program, run as user 65532 with its data in /data."""
    layer = add_layer(build)
    compressed = build.gzip(layer)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(build.time))
    labels = {
        "org.opencontainers.image.title": "watchet",
        "org.opencontainers.image.description": "A Kubernetes-compatible API server built around a watch cache",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": build.version,
        "org.opencontainers.image.created": created,
    }
    config = encode(
        {
            "created": created,
            "architecture": build.oci,
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "ExposedPorts": {"6443/tcp": {}},
                "Env": ["PATH=/usr/bin"],
                "Entrypoint": ["/usr/bin/watchet"],
                "Cmd": ["serve", "--bind-address", "0.0.0.0", "--data-dir", "/data"],
                "Volumes": {"/data": {}},
                "WorkingDir": "/data",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
            "history": [{"created": created, "created_by": "scripts/package"}],
        }
    )
    media = "application/vnd.oci.image"
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": f"{media}.manifest.v1+json",
            "config": descriptor(f"{media}.config.v1+json", config),
            "layers": [descriptor(f"{media}.layer.v1.tar+gzip", compressed)],
        }
    )
    name = f"watchet:{build.version}"
    entry = descriptor(f"{media}.manifest.v1+json", manifest)
    entry["platform"] = {"architecture": build.oci, "os": "linux"}
    entry["annotations"] = {"org.opencontainers.image.ref.name": build.version, "io.containerd.image.name": name}
    index = {"schemaVersion": 2, "mediaType": f"{media}.index.v1+json", "manifests": [entry]}
    archive = Tar(build.time)
    archive.file("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    archive.file("index.json", encode(index))
    # skopeo without root cannot create directories that the archive does not have.
    archive.directory("blobs")
    archive.directory("blobs/sha256")
    for data in (config, compressed, manifest):
        archive.file(blob(data), data)
    # What versions of Docker read that do not know the image layout.
    archive.file("manifest.json", encode([{"Config": blob(config), "RepoTags": [name], "Layers": [blob(compressed)]}]))
    path = build.path(f"watchet-{build.version}-oci-{build.oci}.tar")
    path.write_bytes(archive.finish())
    return path


def add_layer(build):
    tar = Tar(build.time)
    for directory in ("usr", "usr/bin", "etc", "etc/ssl", "etc/ssl/certs"):
        tar.directory(directory)
    tar.directory("tmp", 0o1777)
    tar.directory("data", 0o700, USER)
    tar.file("usr/bin/watchet", build.data, 0o755)
    tar.file("etc/passwd", f"root:x:0:0:root:/:/\nwatchet:x:{USER}:{USER}:watchet:/data:/\n")
    tar.file("etc/group", f"root:x:0:\nwatchet:x:{USER}:\n")
    tar.file("etc/nsswitch.conf", "hosts: files dns\n")
    # For issuers of tokens and webhooks whose certificates public authorities have signed.
    if CERTIFICATES.exists():
        tar.file("etc/ssl/certs/ca-certificates.crt", CERTIFICATES.read_bytes())
    if build.glibc is not None:
        add_libraries(build, tar)
    return tar.finish()


def add_libraries(build, tar):
    """Adds the C library of this machine, for a program that is not static, as that of a test."""
    output = subprocess.run(["ldd", build.binary], capture_output=True, text=True, check=True).stdout
    added = set()
    for path in map(pathlib.Path, re.findall(r"(/\S+) \(0x", output)):
        for parent in reversed(path.parents[:-1]):
            if parent not in added and str(parent) != "/usr":
                added.add(parent)
                tar.directory(str(parent)[1:])
        tar.file(str(path)[1:], path.read_bytes(), 0o755)


def encode(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def blob(data):
    return f"blobs/sha256/{digest(data)}"


def descriptor(media_type, data):
    return {"mediaType": media_type, "digest": f"sha256:{digest(data)}", "size": len(data)}
