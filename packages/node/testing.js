// Starts watchet servers for tests.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { binary } from './binary.js';

const START_MS_MAX = 30_000;
const STOP_MS_MAX = 10_000;

function readIfExists(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Starts a server on a free port that stores objects in memory. See testing.d.ts. */
export async function start({ flags = [] } = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'watchet-'));
  const ready = join(directory, 'ready');
  const logPath = join(directory, 'log');
  const log = openSync(logPath, 'w');
  const isSetting = ([name]) => name.startsWith('WATCHET_');
  const child = spawn(
    binary(),
    [
      'serve',
      '--storage=memory',
      '--secure-port=0',
      `--data-dir=${join(directory, 'data')}`,
      `--ready-file=${ready}`,
      `--exit-with-parent=${process.pid}`,
      ...flags,
    ],
    {
      stdio: ['ignore', 'ignore', log],
      env: Object.fromEntries(Object.entries(process.env).filter((entry) => !isSetting(entry))),
    },
  );
  closeSync(log);
  let failure;
  child.on('error', (error) => (failure = error));
  const exited = once(child, 'close').catch(() => {});
  const hasExited = () => failure !== undefined || child.exitCode !== null || child.signalCode !== null;

  let stopped;
  const stop = () => {
    stopped ??= (async () => {
      if (!hasExited()) {
        child.kill('SIGTERM');
        const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
        await exited;
        clearTimeout(killer);
      }
      rmSync(directory, { recursive: true, force: true });
    })();
    return stopped;
  };

  const deadline = Date.now() + START_MS_MAX;
  let content;
  while ((content = readIfExists(ready)) === undefined) {
    const problem = hasExited()
      ? `watchet exited with code ${child.exitCode ?? child.signalCode ?? failure} before it was ready`
      : Date.now() > deadline && `watchet is not ready after ${START_MS_MAX} ms`;
    if (problem) {
      const text = readIfExists(logPath);
      await stop();
      throw new Error(`${problem}:\n${text}`);
    }
    await sleep(2);
  }
  const { url, kubeconfig, pid } = JSON.parse(content);
  return {
    url,
    kubeconfig,
    pid,
    log: () => readIfExists(logPath) ?? '',
    stop,
    [Symbol.asyncDispose]: stop,
  };
}
