"""The Helm chart: linted and rendered by helm, and applied to a running watchet."""

import json
import os
import tarfile

from harness import PackageTest, eventually, kubectl, package, run

HELM = os.environ["WATCHET_TEST_HELM"]

VARIANTS = {
    "default": [],
    "etcd": ["--set=storage.kind=etcd", "--set=storage.etcdServers={http://a:2379,http://b:2379}"],
    "all": [
        "--set=persistence.enabled=false", "--set=auth.tokenSecret=t", "--set=auth.clientCaSecret=c", "--set=tlsSecret=s",
        "--set=tlsSans={api.example.com}", "--set=extraArgs={--log-format=json}", "--set=imagePullSecrets[0].name=p",
        "--set=nodeSelector.disk=fast", "--set=podAnnotations.a=b", "--set=service.annotations.a=b",
        "--set=serviceAccount.name=other", "--set=tolerations[0].operator=Exists",
    ],
}


class Chart(PackageTest):
    def setUp(self):
        super().setUp()
        self.chart = package("watchet-chart-*.tgz")

    def render(self, *arguments, status=0):
        return run(HELM, "template", "api", self.chart, "--namespace", "default", *arguments, status=status)

    def test_helm_finds_no_problem(self):
        for name, flags in VARIANTS.items():
            with self.subTest(name):
                output = run(HELM, "lint", "--strict", *flags, self.chart)
                self.assertIn("1 chart(s) linted, 0 chart(s) failed", output)

    def test_schema_rejects_wrong_values(self):
        for flag in ("--set=storage.kind=paper", "--set=storage.kind=etcd", "--set=replicas=2", "--set=service.port=0"):
            with self.subTest(flag):
                self.assertIn("values don't meet the specifications of the schema", self.render(flag, status=1))

    def test_objects_are_valid_and_the_server_accepts_their_flags(self):
        with tarfile.open(package("watchet-*-linux-x86_64.tar.gz")) as archive:
            (member,) = [member for member in archive if member.name.endswith("/bin/watchet")]
            binary = self.directory / "watchet"
            binary.write_bytes(archive.extractfile(member).read())
        binary.chmod(0o755)
        ready = self.directory / "ready"
        flags = ["--storage=memory", "--secure-port=0", f"--ready-file={ready}"]
        self.start(binary, "serve", *flags, cwd=self.directory)
        eventually(ready.exists)
        kubeconfig = json.loads(ready.read_text())["kubeconfig"]
        for name, arguments in VARIANTS.items():
            with self.subTest(name):
                text = self.render(*arguments)
                output = kubectl(kubeconfig, "create", "--validate=strict", "--filename=-", input=text)
                self.assertIn("statefulset.apps/api-watchet created", output)
                self.assertIn("service/api-watchet created", output)
                found = kubectl(kubeconfig, "get", "statefulset", "api-watchet", "--output=json")
                (container,) = json.loads(found)["spec"]["template"]["spec"]["containers"]
                self.check_flags(binary, container["args"])
                kubectl(kubeconfig, "delete", "--filename=-", input=text)

    def check_flags(self, binary, flags):
        # A value that is wrong after all others: the server refuses only that.
        output = run(binary, *flags, "--log-level=refused", cwd=self.directory, status=2)
        self.assertIn('--log-level "refused"', output)
