"""The tarball: the program, completions in a real bash, manual pages."""

import json
import os
import shutil
import tarfile

from harness import ROOT, PackageTest, eventually, package, run


SMALL_PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    char path[4096];
    if (count < 3 || strcmp(arguments[1], "man") != 0)
        return puts("completions") == EOF;
    mkdir(arguments[2], 0777);
    snprintf(path, sizeof path, "%s/watchet.1", arguments[2]);
    FILE *page = fopen(path, "w");
    return page == NULL || fputs(".TH watchet 1\n", page) == EOF || fclose(page) == EOF;
}
"""


class Tarball(PackageTest):
    def setUp(self):
        super().setUp()
        with tarfile.open(package("watchet-*-linux-x86_64.tar.gz")) as archive:
            archive.extractall(self.directory, filter="fully_trusted")
        (self.root,) = self.directory.glob("watchet-*")
        self.binary = self.root / "bin/watchet"

    def test_program_serves_the_configuration_of_the_tarball(self):
        ready = self.directory / "ready"
        settings = self.root / "config/watchet.yaml"
        process = self.start(
            self.binary, "--config", settings, "--secure-port=0", f"--ready-file={ready}", cwd=self.directory
        )
        eventually(ready.exists)
        content = json.loads(ready.read_text())
        self.assertEqual(content["pid"], process.pid)
        self.check_server(content["kubeconfig"])
        process.terminate()
        self.assertEqual(process.wait(), 0)

    def test_bash_completes_commands_flags_and_values(self):
        script = self.root / "share/bash-completion/completions/watchet"

        def complete(*words):
            # What bash does when the user types the words and presses the tab key.
            text = f"""
                source {script}
                complete -p watchet >&2 || exit 1
                COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
                COMP_LINE="${{COMP_WORDS[*]}}" COMP_POINT=${{#COMP_LINE}}
                $(complete -p watchet | sed 's/.*-F \\([^ ]*\\).*/\\1/') watchet "{words[-1]}" "{words[-2]}"
                printf '%s\\n' "${{COMPREPLY[@]}}"
            """
            return run("bash", "--norc", "-c", text).splitlines()[1:]

        self.assertIn("serve", complete("watchet", "s"))
        self.assertIn("--ready-file", complete("watchet", "serve", "--ready"))
        self.assertIn("backup", complete("watchet", "store", "b"))
        self.assertEqual(complete("watchet", "completion", "fi"), ["fish"])

    def test_completions_of_other_shells_are_valid(self):
        fish = (self.root / "share/fish/vendor_completions.d/watchet.fish").read_text()
        self.assertIn("-l exit-with-parent", fish)
        zsh = (self.root / "share/zsh/site-functions/_watchet").read_text()
        self.assertTrue(zsh.startswith("#compdef watchet"))
        for shell, script in {"zsh": "zsh/site-functions/_watchet", "fish": "fish/vendor_completions.d/watchet.fish"}.items():
            if shutil.which(shell):
                run(shell, "-n", self.root / "share" / script)

    def test_each_command_has_a_manual_page(self):
        pages = self.root / "share/man/man1"
        names = sorted(page.name for page in pages.iterdir())
        self.assertIn("watchet.1", names)
        self.assertIn("watchet-store-backup.1", names)
        if shutil.which("man"):
            text = run("man", pages / "watchet-serve.1", env={**os.environ, "MANWIDTH": "100", "MAN_KEEP_FORMATTING": ""})
            self.assertIn("--exit-with-parent", text)


class Reproducible(PackageTest):
    """A second run makes the same bytes."""

    def test_two_runs_make_the_same_packages(self):
        binary = self.directory / "watchet"
        # The packages of the real program are the same too, but take long to make.
        (self.directory / "small.c").write_text(SMALL_PROGRAM)
        run("cc", "-o", binary, self.directory / "small.c")
        sums = []
        for umask in ("022", "077"):
            output = self.directory / umask
            script = f'umask {umask}; exec "$@"'
            command = [ROOT / "scripts/package", "--fast", "--no-sbom", "--binary", binary, "--output", output]
            run("sh", "-c", script, "sh", *command)
            sums.append((output / "SHA256SUMS").read_text())
        self.assertEqual(sums[0], sums[1])
        self.assertEqual(len(sums[0].splitlines()), 6)
