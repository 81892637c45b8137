// Runs the watchet binary for a test of the console. WATCHET_TEST_BINARY names it; scripts/test-console sets it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

const START_TIMEOUT = 60_000;

/** The bearer tokens of the users. */
export const ADMIN = 'token-of-the-administrator';
export const READER = 'token-of-the-reader';

/** A running server; must be stopped. */
export class Server {
  /** Starts a server on free ports, with the users `admin` (may do everything) and `reader` (may do nothing yet). */
  static async start(...flags) {
    const binary = process.env.WATCHET_TEST_BINARY;
    if (!binary) throw new Error('WATCHET_TEST_BINARY is not set; run the tests with scripts/test-console');
    const directory = mkdtempSync(path.join(tmpdir(), 'watchet-console-'));
    const tokens = path.join(directory, 'tokens.csv');
    writeFileSync(tokens, `${ADMIN},admin,1,"system:masters"\n${READER},reader,2\n`);
    const log = path.join(directory, 'log');
    const child = spawn(binary, [
      'serve', `--data-dir=${directory}/data`, '--storage=memory', '--secure-port=0', '--insecure-port=auto', `--token-auth-file=${tokens}`, ...flags,
    ], { stdio: ['ignore', 'pipe', openSync(log, 'w')] });
    const server = new Server();
    Object.assign(server, { child, directory, binary, ended: once(child, 'exit') });
    let secure;
    const killer = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT);
    for await (const line of createInterface({ input: child.stdout })) {
      server.link ??= /^Console: (https:\S+)/.exec(line)?.[1];
      secure ??= /^Serving (https:\S+)/.exec(line)?.[1];
      server.insecure ??= /^Serving (http:\S+)/.exec(line)?.[1];
      if (!line.startsWith('watchet is ready')) continue;
      clearTimeout(killer);
      server.url = secure;
      server.kubeconfig = path.join(directory, 'data', 'kubeconfig');
      server.agent = new https.Agent({ keepAlive: true, maxSockets: 16, ca: readFileSync(path.join(directory, 'data', 'pki', 'ca.crt')) });
      return server;
    }
    const printed = readFileSync(log, 'utf8');
    await server.stop();
    throw new Error(`the server did not start:\n${printed}`);
  }

  /** Sends a request as the administrator and returns the response, which is to be read. */
  open(method, target, body, { agent = this.agent, token = ADMIN, userAgent = 'console-test' } = {}) {
    return new Promise((resolve, reject) => {
      const headers = { Authorization: `Bearer ${token}`, 'User-Agent': userAgent };
      if (body !== undefined) headers['Content-Type'] = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
      const request = https.request(this.url + target, { method, agent, headers }, resolve);
      request.on('error', reject);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Sends a request as the administrator and returns the JSON of the response, which must be a success. */
  async call(method, target, body) {
    const response = await this.open(method, target, body);
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    if (response.statusCode >= 300) throw new Error(`${method} ${target}: ${response.statusCode} ${text}`);
    return JSON.parse(text);
  }

  /** Opens a watch that never reads; returns a function that closes it. */
  async stall(target) {
    const agent = new https.Agent({ ca: this.agent.options.ca });
    const response = await this.open('GET', `${target}?watch=true`, undefined, { agent, userAgent: 'stalled-client' });
    response.pause();
    response.on('error', () => {});
    return () => {
      response.destroy();
      agent.destroy();
    };
  }

  /** Kills the server and deletes its files. */
  async stop() {
    this.child.kill('SIGKILL');
    await this.ended;
    this.agent?.destroy();
    rmSync(this.directory, { recursive: true });
  }
}
