// Tests of the console in a headless Chromium, with the real server. WATCHET_TEST_CHROMIUM names the browser;
// WATCHET_TEST_SCREENSHOTS is a directory for pictures of the pages, if it is set.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { Browser } from './browser.js';
import { READER, Server } from './server.js';

const OBJECTS = 20_000;
/** The maximum CPU time in milliseconds of one task of the page, which handles no keys meanwhile. The page works in slices of
 * about 10 ms. Wall time would include interruptions by other processes. */
const BLOCKED_MAX = 250;
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';
const PODS = '/api/v1/namespaces/default/pods';

let server;
let browser;
const pages = [];

before(async () => {
  // The time slider reads versions from the start of the run, which a compaction would delete.
  [server, browser] = await Promise.all([Server.start('--etcd-compaction-interval=1h'), Browser.start(process.env.WATCHET_TEST_CHROMIUM)]);
});

// Pages of an earlier test would take the CPU from the next one.
afterEach(() => browser?.closePages());

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens a page that is logged in by a new link, which `watchet console` prints. */
async function openConsole(options = {}) {
  const page = await browser.open();
  await page.emulate({ width: 1280, ...options });
  const link = execFileSync(server.binary, ['console', '--kubeconfig', server.kubeconfig], { encoding: 'utf8' }).trim();
  await page.navigate(link);
  await page.until("document.querySelector('nav a')");
  pages.push(page);
  return page;
}

const go = (page, hash) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
const pod = (name, labels) => ({ metadata: { name, labels }, spec: { containers: [{ name: 'web', image: 'nginx' }] } });
const rows = "[...document.querySelectorAll('.virtual .row:not([hidden])')].map((row) => row.innerText)";
const hasRow = (text) => `${rows}.some((text) => text.includes(${JSON.stringify(text)}))`;

test('the link that the server prints logs in once', async () => {
  const page = await browser.open();
  await page.navigate(server.link);
  await page.untilText('kubernetes-admin');
  assert.equal(await page.evaluate('location.href.includes("login")'), false, 'the code is removed from the address');
  assert.deepEqual(page.problems, []);
  const second = await browser.open();
  await second.navigate(server.link);
  await second.untilText('The link was used before');
  await second.untilText('Log in');
  // The session ends on the server too.
  const token = await page.evaluate("JSON.parse(sessionStorage.getItem('watchet-console')).token");
  const watch = await server.open('GET', `${CONFIG_MAPS}?watch=true`, undefined, { token });
  const status = async () => {
    const response = await server.open('GET', '/api', undefined, { token });
    response.resume();
    return response.statusCode;
  };
  assert.equal(await status(), 200);
  await page.evaluate("[...document.querySelectorAll('button')].find((button) => button.innerText === 'Log out').click()");
  await page.untilText('Open the link');
  assert.equal(await status(), 401);
  let events = '';
  for await (const chunk of watch.setEncoding('utf8')) events += chunk;
  assert.match(events, /"code":401/, 'its watches end');
});

test('a new tab takes over the session of an open one', async () => {
  const page = await openConsole();
  const tab = await browser.open(page);
  // The open tab has a second to answer, which is short for a busy machine.
  let user;
  for (let attempt = 0; attempt < 20 && user !== 'kubernetes-admin'; attempt += 1) {
    await tab.navigate(`${server.url}/console/`);
    user = await tab.until("document.querySelector('.user')?.innerText || document.body.innerText.includes('Open the link')");
  }
  assert.equal(user, 'kubernetes-admin');
  const other = await browser.open();
  await other.navigate(`${server.url}/console/`);
  await other.untilText('Open the link');
});

test('the console can be switched off', async () => {
  const without = await Server.start('--console=false');
  try {
    assert.equal(without.link, undefined);
    for (const [method, target] of [['GET', '/console/'], ['POST', '/console/login'], ['POST', '/console/link']]) {
      const response = await without.open(method, target, method === 'POST' ? { code: 'x' } : undefined);
      response.resume();
      assert.equal(response.statusCode, 404, target);
    }
  } finally {
    await without.stop();
  }
});

test('all pages are reached by keys, and show data', async () => {
  const page = await openConsole();
  for (const [key, text] of [['2', 'configmaps'], ['3', 'Lists per second'], ['4', 'Watch caches'], ['5', 'pods'], ['1', 'Requests per second']]) {
    await page.press(key);
    await page.untilText(text);
  }
  await page.untilText('poststarthook/rbac/bootstrap-roles');
  await page.until("document.querySelectorAll('path.line[d^=M]').length > 3", 'plots have lines');
  await page.press('?');
  await page.untilText('move in a list');
  await page.press('Escape');
  await page.until("!document.querySelector('dialog')");
});

test('a pod appears in the list and on the tape, and its change has a difference', async () => {
  const [list, tape] = [await openConsole(), await openConsole()];
  await go(list, '#/objects/pods');
  await list.untilText('live');
  await go(tape, '#/tape');
  await tape.untilText('No events yet');
  await tape.untilWatch('pods');
  await server.call('POST', PODS, pod('appears', { app: 'web' }));
  await list.until(hasRow('appears'));
  await tape.until(hasRow('default/appears'));
  await server.call('PATCH', `${PODS}/appears`, { metadata: { labels: { app: 'db' } } });
  await tape.until(hasRow('metadata.labels.app: web → db'));
  await server.call('DELETE', `${PODS}/appears?gracePeriodSeconds=0`);
  await list.until(`!${hasRow('appears')}`);
});

test('the time slider shows an earlier state', async () => {
  const page = await openConsole();
  await server.call('POST', PODS, pod('first'));
  await go(page, '#/objects/pods');
  await page.until(hasRow('first'));
  await server.call('POST', PODS, pod('second'));
  await page.until(hasRow('second'));
  await page.press('[');
  await page.until(`document.querySelector('.virtual.past') && ${hasRow('first')} && !${hasRow('second')}`, 'the state before the second pod');
  await page.untilText('as of ');
  await page.press('l');
  await page.until(`!document.querySelector('.virtual.past') && ${hasRow('second')}`);
  // The slider itself, at the oldest version.
  await page.evaluate("{ const slider = document.getElementById('time'); slider.value = slider.min; slider.dispatchEvent(new Event('input')); }");
  await page.until(`document.querySelector('.virtual.past') && !${hasRow('first')}`, 'the state before the first pod');
});

test('an object has YAML as kubectl prints it, a timeline, and differences of any two versions', async () => {
  const page = await openConsole();
  const data = { 'a.yaml': 'x: 1\ny:\n  - "z"\n', number: '1.0', flag: 'true', text: 'a: b # c', empty: '' };
  await server.call('POST', CONFIG_MAPS, { metadata: { name: 'history' }, data });
  await server.call('PATCH', `${CONFIG_MAPS}/history`, { data: { number: '2.0' } });
  await server.call('PATCH', `${CONFIG_MAPS}/history`, { data: { flag: null, more: 'x' } });
  await go(page, '#/object/core/v1/configmaps/default/history');
  await page.until("document.querySelectorAll('.timeline li').length === 3", 'three versions');
  const kubectl = execFileSync(process.env.WATCHET_TEST_KUBECTL_NEWEST, ['--kubeconfig', server.kubeconfig, 'get', 'configmap', 'history', '-o', 'yaml'], { encoding: 'utf8' });
  assert.equal((await page.evaluate("document.querySelector('.yaml').textContent")).trimEnd(), kubectl.trimEnd());
  await page.press('d');
  const signs = () => page.evaluate("[...document.querySelectorAll('.diff .plus, .diff .minus')].map((line) => line.textContent.trim())");
  assert.ok((await signs()).includes('+   more: x'));
  // Compares with the first version.
  await page.evaluate("[...document.querySelectorAll('.timeline button')].at(-1).click()");
  const all = await signs();
  assert.ok(all.includes('-   number: "1.0"') && all.includes('+   number: "2.0"') && all.includes('-   flag: "true"'), all.join('\n'));
  await page.press('c');
  await page.untilText('data.number');
  await page.press('ArrowDown');
  await page.untilText('1.0');
  // A new version appears, without a reload.
  await server.call('DELETE', `${CONFIG_MAPS}/history`);
  await page.until("document.querySelectorAll('.timeline li').length === 4 && document.querySelector('.timeline li').innerText.includes('deleted')");
  await page.press('Escape');
});

test('a watcher that does not read is shown as parked, and can be ended', async () => {
  const [page, caches] = [await openConsole(), await openConsole()];
  await go(page, '#/watchers');
  await go(caches, '#/caches');
  await caches.until("document.querySelector('.ring .filled')", 'a history');
  const close = await server.stall(CONFIG_MAPS);
  try {
    const value = 'x'.repeat(500_000);
    await server.call('POST', CONFIG_MAPS, { metadata: { name: 'big' }, data: { value } });
    for (let index = 0; index < 40; index += 1) {
      await server.call('PUT', `${CONFIG_MAPS}/big`, { metadata: { name: 'big' }, data: { value, index: String(index) } });
    }
    const isParked = `${rows}.some((text) => /Parked/.test(text) && /configmaps/.test(text) && /stalled-client/.test(text))`;
    await page.until(isParked, 'a parked watcher');
    await page.until("document.querySelector('.state').innerText.includes('1 parked')");
    await page.until("[...document.querySelectorAll('.table tr')].some((row) => row.innerText.includes('stalled-client'))", 'its client');
    await caches.until("document.querySelector('.ring .dot.parked')", 'a parked watcher on the ring');
    // The parked watcher is the first row.
    await page.press('Home');
    await page.press('Delete');
    await page.until(`!${isParked}`, 'the end of the watch');
  } finally {
    close();
  }
});

test('clients that list often are shown', async () => {
  const page = await openConsole();
  await go(page, '#/watchers');
  const isHot = "[...document.querySelectorAll('.table tr')].some((row) => row.innerText.includes('console-test') && Number(row.cells[3].innerText) > 1)";
  const end = Date.now() + 60_000;
  let found = false;
  while (!found && Date.now() < end) {
    for (let index = 0; index < 20; index += 1) await server.call('GET', PODS);
    found = await page.evaluate(isHot);
  }
  assert.ok(found, await page.text());
});

test('a list of 20,000 objects scrolls, and the page is never blocked for long', async () => {
  let next = 0;
  const create = async () => {
    while (next < OBJECTS) {
      next += 1;
      const name = `item-${String(next).padStart(6, '0')}`;
      await server.call('POST', CONFIG_MAPS, { metadata: { name, labels: { set: 'many' } }, data: { index: String(next) } });
    }
  };
  await Promise.all(Array.from({ length: 16 }, create));
  const page = await openConsole();
  const endTrace = await browser.traceTasks();
  await go(page, '#/objects/configmaps');
  await page.until(`Number(document.querySelector('.state')?.dataset.count) >= ${OBJECTS}`);
  await page.press('End');
  await page.until(hasRow('item-020000'));
  await page.evaluate("new Promise((resolve) => { const list = document.querySelector('.virtual'); let top = 0; const step = () => { list.scrollTop = top; top += 2800; if (top < list.scrollHeight) requestAnimationFrame(step); else resolve(); }; step(); })");
  assert.ok((await page.evaluate("document.querySelectorAll('.virtual .row').length")) < 200, 'only rows in view exist');
  await page.press('/');
  await page.type('item-012345');
  await page.until(`${rows}.length === 1 && ${hasRow('item-012345')}`);
  await page.press('Escape');
  await page.press('Home');
  await page.press('Enter');
  await page.untilText('Timeline');
  await page.until("document.querySelector('.yaml')?.textContent.includes('index: \"12345\"')");
  const blocked = await endTrace();
  assert.ok(blocked < BLOCKED_MAX, `the page was blocked for ${blocked} ms of CPU time`);
});

test('a user who may only read pods logs in with a token, and sees what is not allowed', async () => {
  await server.call('POST', '/apis/rbac.authorization.k8s.io/v1/clusterroles', { metadata: { name: 'pods-only' }, rules: [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }] });
  await server.call('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', { metadata: { name: 'pods-only' }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'pods-only' }, subjects: [{ kind: 'User', apiGroup: 'rbac.authorization.k8s.io', name: 'reader' }] });
  await server.call('POST', PODS, pod('readable'));
  const page = await browser.open();
  await page.emulate({ width: 1280 });
  await page.navigate(`${server.url}/console/`);
  await page.untilText('Log in');
  await page.type('wrong');
  await page.press('Enter');
  await page.untilText('The server does not accept this token.');
  await page.evaluate("{ const input = document.querySelector('input[name=token]'); input.focus(); input.value = ''; }");
  await page.type(READER);
  await page.press('Enter');
  await page.until("document.querySelector('.user')?.innerText === 'reader'");
  await go(page, '#/objects/pods');
  await page.until(hasRow('readable'));
  await go(page, '#/objects/secrets');
  await page.untilText('may not list secrets');
  await go(page, '#/overview');
  await page.untilText('may not read /metrics');
  // The browser reports each response with an error code; nothing else is wrong.
  const others = page.problems.filter((problem) => !/status of 40[13]/.test(problem));
  assert.deepEqual(others, []);
});

test('the insecure port needs no login', async () => {
  await server.call('POST', PODS, pod('open'));
  const page = await browser.open();
  await page.emulate({ width: 1280 });
  await page.navigate(`${server.insecure}/console/#/objects/pods`);
  await page.until(hasRow('open'));
  assert.deepEqual(page.problems, []);
});

test('every page fits the width of a phone and of a desktop, in both color schemes', async () => {
  await server.call('POST', '/apis/apps/v1/namespaces/default/deployments', { metadata: { name: 'web' }, spec: { replicas: 2, selector: { matchLabels: { app: 'web' } }, template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'web', image: 'nginx:1' }] } } } });
  for (const image of ['nginx:2', 'nginx:3']) await server.call('PATCH', '/apis/apps/v1/namespaces/default/deployments/web', { spec: { replicas: Number(image.at(-1)), template: { spec: { containers: [{ name: 'web', image }] } } } });
  const backgrounds = new Set();
  // An empty page is never too wide.
  const content = {
    tape: hasRow('spec.replicas'),
    watchers: `document.body.innerText.includes('Lists per second') && ${rows}.length > 0`,
    caches: "document.querySelector('.caches article')",
    objects: `document.querySelector('select[aria-label=Resource]') && ${rows}.length > 0`,
    object: "document.querySelectorAll('.timeline li').length > 2",
    overview: "document.body.innerText.includes('poststarthook/rbac/bootstrap-roles') && document.querySelectorAll('path.line[d^=M]').length > 3",
  };
  for (const [width, height] of [[1280, 800], [390, 844]]) {
    for (const scheme of ['light', 'dark']) {
      const page = await openConsole({ width, height, scheme });
      for (const name of ['tape', 'watchers', 'caches', 'objects', 'object/apps/v1/deployments/default/web', 'overview']) {
        await go(page, `#/${name}`);
        if (name === 'tape') {
          await page.untilWatch('deployments');
          for (let replicas = 1; replicas < 9; replicas += 1) await server.call('PATCH', '/apis/apps/v1/namespaces/default/deployments/web', { spec: { replicas } });
        }
        await page.until(content[name.split('/')[0]], name);
        if (name.startsWith('object/')) {
          await page.press('d');
          await page.until("document.querySelector('.diff')");
        }
        const overflow = await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth');
        assert.equal(overflow, 0, `${name} is ${overflow} pixels wider than ${width}`);
        if (process.env.WATCHET_TEST_SCREENSHOTS) {
          mkdirSync(process.env.WATCHET_TEST_SCREENSHOTS, { recursive: true });
          writeFileSync(path.join(process.env.WATCHET_TEST_SCREENSHOTS, `${name.split('/')[0]}-${width}-${scheme}.png`), await page.screenshot());
        }
      }
      backgrounds.add(await page.evaluate('getComputedStyle(document.body).backgroundColor'));
    }
  }
  assert.equal(backgrounds.size, 2, 'light and dark differ');
});

test('no page has reported an error or violated its Content Security Policy', () => {
  assert.ok(pages.length > 8);
  assert.deepEqual(pages.flatMap((page) => page.problems), []);
});
