// Tests of the pages of `watchet bench` in a headless Chromium: they fit narrow and wide screens in both color schemes.
// WATCHET_TEST_SCREENSHOTS is a directory for pictures of the pages, if it is set.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { Browser } from './browser.js';
import { Server } from './server.js';

const WATCH = ['--saturate', '--events', '200', '--rate', '200', '--json'];
/** The elements outside of scrolling tables that are wider than the screen. */
const TOO_WIDE = `[...document.querySelectorAll('main *')]
  .filter((element) => element.checkVisibility() && !element.closest('.scroll') && element.getBoundingClientRect().right > innerWidth + 1)
  .map((element) => element.outerHTML.slice(0, 80))`;
const PLOTS = "[...document.querySelectorAll('figure')].map((figure) => [...figure.querySelectorAll('.plot')].filter((plot) => plot.checkVisibility()).length)";

let browser;
let directory;

before(async () => {
  const server = await Server.start();
  browser = await Browser.start(process.env.WATCHET_TEST_CHROMIUM);
  directory = mkdtempSync(path.join(tmpdir(), 'watchet-bench-'));
  const bench = (...args) => execFileSync(server.binary, ['bench', ...args], { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const [name, watchers] of [['old', '3'], ['new', '5']]) {
    const report = bench('watch', '--kubeconfig', server.kubeconfig, '--watchers', watchers, ...WATCH, '--html', `${name}.html`);
    writeFileSync(path.join(directory, `${name}.json`), report);
  }
  bench('compare', 'old.json', 'new.json', '--html', 'comparison.html');
  await server.stop();
});

after(async () => {
  await browser?.close();
  if (directory) rmSync(directory, { recursive: true });
});

for (const [name, heading] of [['new', 'Passed'], ['comparison', 'new compared with old']]) {
  for (const width of [380, 1280]) {
    for (const scheme of ['light', 'dark']) {
      test(`the page ${name} fits ${width} pixels, ${scheme}`, async () => {
        const page = await browser.open();
        await page.emulate({ width, scheme });
        await page.navigate(pathToFileURL(path.join(directory, `${name}.html`)).href);
        await page.untilText(heading);
        assert.deepEqual(await page.evaluate(TOO_WIDE), []);
        const plots = await page.evaluate(PLOTS);
        assert.ok(plots.length >= 3, `${plots.length} plots`);
        assert.ok(plots.every((visible) => visible === 1), 'each plot is visible in one size');
        const dark = await page.evaluate('getComputedStyle(document.body).backgroundColor') !== 'rgb(255, 255, 255)';
        assert.equal(dark, scheme === 'dark');
        assert.deepEqual(page.problems, []);
        await takePicture(page, `bench-${name}-${width}-${scheme}`, { width, scheme });
      });
    }
  }
}

/** Writes a picture of the whole page, if there is a directory for pictures. */
async function takePicture(page, name, view) {
  const pictures = process.env.WATCHET_TEST_SCREENSHOTS;
  if (!pictures) return;
  const height = await page.evaluate('document.documentElement.scrollHeight');
  await page.emulate({ ...view, height });
  mkdirSync(pictures, { recursive: true });
  writeFileSync(path.join(pictures, `${name}.png`), await page.screenshot());
}
