// Runs the watchet binary as a process of a test. WATCHET_TEST_BINARY names it; scripts/test-clients sets it.

import { spawn } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { once } from 'node:events';

const START_TIMEOUT_MS = 30_000;

// Starts a server on a free port with a data directory of its own and resolves when it is ready, with the
// path of its kubeconfig and a function that kills it.
export async function startServer(...flags) {
  const binary = process.env.WATCHET_TEST_BINARY;
  if (!binary) throw new Error('WATCHET_TEST_BINARY is not set; run the tests with scripts/test-clients');
  const directory = mkdtempSync(join(tmpdir(), 'watchet-'));
  const dataDir = join(directory, 'data');
  const log = join(directory, 'log');
  const args = ['serve', `--data-dir=${dataDir}`, '--secure-port=0', ...flags];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', openSync(log, 'w')] });
  const ended = once(child, 'exit');
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
    rmSync(directory, { recursive: true });
  };
  const killer = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT_MS);
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith('watchet is ready')) {
      clearTimeout(killer);
      return { kubeconfig: join(dataDir, 'kubeconfig'), stop };
    }
  }
  const printed = readFileSync(log);
  await stop();
  throw new Error(`the server did not start:\n${printed}`);
}
