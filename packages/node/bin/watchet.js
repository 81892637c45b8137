#!/usr/bin/env node
// Runs the program of the package. The program ends with this process, and this process with the program.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

import { binary } from '../binary.js';

const child = spawn(binary(), process.argv.slice(2), {
  stdio: 'inherit',
  env: { WATCHET_EXIT_WITH_PARENT: String(process.pid), ...process.env },
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => child.kill(signal));
}
child.on('error', (error) => {
  console.error(`watchet: cannot run ${child.spawnfile}: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
