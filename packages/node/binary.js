// Finds the program that the package contains for this machine.

import { accessSync, constants } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Returns the path of the program: what WATCHET_BINARY names, or the one in this package. */
export function binary() {
  if (process.env.WATCHET_BINARY) return process.env.WATCHET_BINARY;
  const path = fileURLToPath(new URL(`./bin/${process.platform}-${process.arch}/watchet`, import.meta.url));
  try {
    accessSync(path, constants.X_OK);
  } catch {
    throw new Error(
      `this package of watchet has no program for ${process.platform} on ${process.arch}: set WATCHET_BINARY to the path of one`,
    );
  }
  return path;
}
