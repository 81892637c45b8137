"""The npm package: installed by npm, its launcher, and the helper with node:test."""

import json
import os
import pathlib
import shlex
import signal
import tempfile

from harness import PackageTest, environment, eventually, is_served, package, run

NODE = os.environ["WATCHET_TEST_NODE"]
NPM = shlex.split(os.environ["WATCHET_TEST_NPM"])

TESTS = """
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { request } from 'node:https';
import { test } from 'node:test';
import { start } from 'watchet/testing';

// Returns the kubeconfig, which is JSON.
const kubeconfig = (server) => JSON.parse(readFileSync(server.kubeconfig, 'utf8'));

// Sends a request as the administrator.
function get(server, path, config = kubeconfig(server)) {
  const decode = (text) => Buffer.from(text, 'base64');
  const { cluster } = config.clusters[0];
  const { user } = config.users[0];
  const options = {
    ca: decode(cluster['certificate-authority-data']),
    cert: decode(user['client-certificate-data']),
    key: decode(user['client-key-data']),
    agent: false,
  };
  return new Promise((resolve, reject) => {
    request(new URL(path, server.url), options, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
    }).on('error', reject).end();
  });
}

test('two servers', async () => {
  const [one, two] = await Promise.all([start(), start({ flags: ['--log-format=json'] })]);
  assert.notEqual(one.url, two.url);
  assert.equal(await get(one, '/api/v1/namespaces/default'), 200);
  assert.equal(JSON.parse(two.log().split('\\n')[0]).level, 'INFO');
  const config = kubeconfig(one);
  await Promise.all([one.stop(), two.stop(), two.stop()]);
  assert.ok(!existsSync(one.kubeconfig));
  await assert.rejects(get(one, '/version', config), { code: 'ECONNREFUSED' });
});

test('an error has the log', async () => {
  await assert.rejects(start({ flags: ['--storage=paper'] }), /code 2 before it was ready:[^]*paper/);
});
"""

ENDLESS = """
import { writeFileSync } from 'node:fs';
import { start } from 'watchet/testing';

const server = await start();
writeFileSync('started', server.url);
setInterval(() => {}, 1000);
"""


class Npm(PackageTest):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.project = pathlib.Path(temporary.name)
        (cls.project / "package.json").write_text('{"private": true, "type": "module"}')
        path = f"{pathlib.Path(NODE).parent}:{os.environ['PATH']}"
        cls.environment = environment(PATH=path, npm_config_cache=str(cls.project / "cache"))
        cls.npm("install", "--offline", "--no-audit", "--no-fund", package("watchet-[0-9]*.tgz"))

    @classmethod
    def npm(cls, *arguments):
        return run(*NPM, *arguments, cwd=cls.project, env=cls.environment)

    def node(self, name, text):
        (self.project / name).write_text(text)
        return [NODE, name]

    def test_npx_runs_the_program(self):
        output = self.npm("exec", "--offline", "--", "watchet", "--version")
        self.assertRegex(output.splitlines()[-1], r"^watchet \d+\.\d+\.\d+$")

    def test_launcher_passes_signals_and_the_exit_code(self):
        launcher = self.project / "node_modules/.bin/watchet"
        run(launcher, "--storage=paper", cwd=self.directory, env=self.environment, status=2)
        ready = self.directory / "ready"
        flags = ["--storage=memory", "--secure-port=0", f"--ready-file={ready}"]
        process = self.start(launcher, "serve", *flags, cwd=self.directory, env=self.environment)
        eventually(ready.exists)
        process.terminate()
        self.assertEqual(process.wait(), 0)
        self.assertFalse(ready.exists())

    def test_killed_launcher_leaves_no_server_behind(self):
        launcher = self.project / "node_modules/.bin/watchet"
        ready = self.directory / "ready"
        flags = ["--storage=memory", "--secure-port=0", f"--ready-file={ready}"]
        process = self.start(launcher, "serve", *flags, cwd=self.directory, env=self.environment)
        eventually(ready.exists)
        url = json.loads(ready.read_text())["url"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not is_served(url))

    def test_helper_starts_servers_in_tests(self):
        output = run(
            *self.node("helper.test.js", TESTS)[:1], "--test", "helper.test.js", cwd=self.project, env=self.environment
        )
        self.assertIn("pass 2", output)

    def test_killed_test_leaves_no_server_behind(self):
        process = self.start(*self.node("endless.js", ENDLESS), cwd=self.project, env=self.environment)
        started = self.project / "started"
        eventually(lambda: started.exists() and started.read_text())
        url = started.read_text()
        self.assertTrue(is_served(url))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not is_served(url))

    def test_types_name_what_the_module_exports(self):
        types = (self.project / "node_modules/watchet/testing.d.ts").read_text()
        self.assertIn("export function start(options?: StartOptions): Promise<Server>;", types)
        manifest = json.loads((self.project / "node_modules/watchet/package.json").read_text())
        self.assertEqual(manifest["exports"]["./testing"]["types"], "./testing.d.ts")
        self.assertEqual(manifest["os"], ["linux"])
