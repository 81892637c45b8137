"""Makes the packages of given programs. scripts/package builds the programs and starts this."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import archives
import debian
import oci
from build import Build, PackageError, read, stripped


def version():
    """Returns the version in Cargo.toml."""
    lines = read("Cargo.toml").splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def write_help(binary, directory):
    """Writes completions and manual pages, which the program prints."""
    for shell, name in {"bash": "watchet.bash", "zsh": "_watchet", "fish": "watchet.fish"}.items():
        script = subprocess.run([binary, "completion", shell], capture_output=True, check=True).stdout
        (directory / name).write_bytes(script)
    subprocess.run([binary, "man", directory / "man"], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--time", required=True, type=int)
    parser.add_argument("--sbom", type=pathlib.Path)
    parser.add_argument("--level", type=int, default=9)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    # Only packages: the directory can have other files of the user.
    for pattern in ("watchet-*", "watchet_*", "SHA256SUMS"):
        for old in options.output.glob(pattern):
            if old.is_file():
                old.unlink()
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        # The first program runs on this machine.
        write_help(options.binaries[0].resolve(), directory)
        builds = []
        for index, binary in enumerate(options.binaries):
            own = directory / str(index)
            own.mkdir()
            builds.append(
                Build(
                    binary=stripped(binary, own),
                    version=version(),
                    time=options.time,
                    level=options.level,
                    output=options.output,
                    help_files=directory,
                    sbom=options.sbom,
                )
            )
        paths = []
        for build in builds:
            paths += [archives.tarball(build), archives.wheel(build), oci.image(build), debian.deb(build)]
        paths += [archives.npm(builds), archives.chart(builds[0])]
    if options.sbom:
        path = options.output / f"watchet-{version()}.cdx.json"
        path.write_bytes(options.sbom.read_bytes())
        paths.append(path)
    archives.checksums(options.output, paths)
    for path in sorted(paths):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")


if __name__ == "__main__":
    try:
        main()
    except (PackageError, subprocess.CalledProcessError) as error:
        sys.exit(f"scripts/package: {error}")
