// Unit tests of the console's modules that need no browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';

const assets = new URL('../../crates/console/assets/', import.meta.url);
const load = (name) => import(new URL(name, assets));
const api = await load('api.js');
const { diff, lineDiff, summary, withContext } = await load('diff.js');
const format = await load('format.js');
const { Clock, changeTime, oldestVersion, timeline } = await load('history.js');
const metrics = await load('metrics.js');
const { ringPosition } = await load('ring.js');
const { objectHash, parseHash } = await load('routes.js');
const { RowStore } = await load('store.js');
const { byClient, isParked, lagOf, listRates, shortUserAgent, sortWatchers } = await load('watchers.js');
const { toYaml } = await load('yaml.js');

test('differences name list items by their keys, and leave out noise', () => {
  const container = (image) => ({ name: 'web', image });
  const before = { metadata: { resourceVersion: '1', labels: { app: 'web' } }, spec: { containers: [{ name: 'a' }, container('x:1')], list: [1, 2] } };
  const after = { metadata: { resourceVersion: '2', labels: { app: 'web', 'a/b': 'c' } }, spec: { containers: [container('x:2'), { name: 'a' }], list: [1, 2, 3] } };
  const changes = diff(before, after);
  assert.deepEqual(changes.map(({ path }) => path).sort(), ['metadata.labels[a/b]', 'spec.containers[web].image', 'spec.list']);
  assert.match(summary(changes), /spec\.containers\[web\]\.image: x:1 → x:2/);
  assert.deepEqual(diff(before, before), []);
  assert.deepEqual(diff(undefined, { a: 1 }), [{ path: 'a', before: undefined, after: 1 }]);
  assert.match(summary([{ path: 'a', before: 1, after: undefined }]), /− a/);
});

test('line differences are minimal, and applying them gives the new text', () => {
  const before = 'a\nb\nc\nd\ne';
  const after = 'a\nc\nx\nd\ne\nf';
  const lines = lineDiff(before, after);
  const side = (sign) => lines.filter((line) => line.sign === ' ' || line.sign === sign).map((line) => line.text).join('\n');
  assert.equal(side('-'), before);
  assert.equal(side('+'), after);
  assert.equal(lines.filter(({ sign }) => sign !== ' ').length, 3);
  const replaced = lineDiff('a\nb', 'c\nd', 1);
  assert.deepEqual(replaced.map(({ sign }) => sign), ['-', '-', '+', '+']);
  const many = lineDiff(`${'x\n'.repeat(50)}y`, `${'x\n'.repeat(50)}z`);
  assert.deepEqual(withContext(many).map(({ sign }) => sign), ['…', ' ', ' ', ' ', '-', '+']);
});

test('YAML quotes what would be read as another type', () => {
  const object = { kind: 'ConfigMap', metadata: { name: 'x', managedFields: [{}] }, data: {
    empty: '', number: '1.5', yes: 'yes', text: 'plain text', colon: 'a: b', lines: 'one\ntwo\n', tab: 'a\tb', date: '2026-01-02T00:00:00Z', dash: '- x', hash: 'a #b', url: 'http://x:1/y', quote: "it's: so",
  }, list: [{ b: [], a: { c: null } }, 'x', [1, [2]]], none: {}, flag: true };
  assert.equal(toYaml(object), `data:
  colon: 'a: b'
  dash: '- x'
  date: "2026-01-02T00:00:00Z"
  empty: ""
  hash: 'a #b'
  lines: |
    one
    two
  number: "1.5"
  quote: 'it''s: so'
  tab: "a\\tb"
  text: plain text
  url: http://x:1/y
  "yes": "yes"
flag: true
kind: ConfigMap
list:
- a:
    c: null
  b: []
- x
- - 1
  - - 2
metadata:
  name: x
none: {}
`);
  assert.match(toYaml(object, { managedFields: true }), /managedFields:\n {2}- \{\}/);
});

test('metrics are parsed with their labels; rates and quantiles are of the time between two scrapes', () => {
  const scrape = (fast, slow) => metrics.parse(`# HELP x y
requests{verb="GET",path="a\\"b{}"} ${fast}
requests{verb="LIST"} ${slow}
seconds_bucket{le="0.1"} ${fast}
seconds_bucket{le="1"} ${fast + slow}
seconds_bucket{le="+Inf"} ${fast + slow}
plain 7
`);
  const [before, after] = [scrape(10, 0), scrape(100, 10)];
  assert.equal(metrics.sum(after, 'requests'), 110);
  assert.equal(metrics.sum(after, 'requests', { path: 'a"b{}' }), 100);
  assert.equal(metrics.sum(after, 'plain'), 7);
  assert.deepEqual([...metrics.sumBy(after, 'requests', 'verb')], [['GET', 100], ['LIST', 10]]);
  assert.equal(metrics.rate(10, 30, 2), 10);
  assert.equal(metrics.rate(30, 10, 2), 0);
  const buckets = (scraped) => metrics.buckets(scraped, 'seconds');
  assert.ok(Math.abs(metrics.quantile(buckets(before), buckets(after), 0.5) - 0.0556) < 0.001);
  assert.ok(metrics.quantile(buckets(before), buckets(after), 0.99) > 0.8);
  assert.ok(Number.isNaN(metrics.quantile(buckets(after), buckets(after), 0.5)));
});

test('a clock interpolates between known versions, and finds their neighbors', () => {
  const clock = new Clock();
  assert.equal(clock.time(5), undefined);
  clock.add('20', 2000);
  clock.add('10', 1000);
  clock.add('20', 2500);
  clock.addObject({ resourceVersion: '40', managedFields: [{ time: '1970-01-01T00:00:04Z' }, { time: '1970-01-01T00:00:01Z' }] });
  clock.addObject({ resourceVersion: '50' });
  assert.deepEqual([9, 10, 15, 20, 30, 45].map((version) => clock.time(version)), [undefined, 1000, 1500, 2000, 3000, 4000]);
  assert.deepEqual([clock.neighbor(20, -1), clock.neighbor(20, 1), clock.neighbor(15, 1), clock.neighbor(10, -1), clock.neighbor(40, 1)], [10, 40, 20, undefined, undefined]);
  assert.equal(changeTime({}), undefined);
});

/** Replaces fetch by `respond(url)`, which returns [status, body], for the time of `run`. */
async function withServer(respond, run) {
  const original = globalThis.fetch;
  globalThis.fetch = async (url, options) => {
    const [status, body] = await respond(new URL(url, 'http://server'), options);
    return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });
  };
  try {
    return await run();
  } finally {
    globalThis.fetch = original;
  }
}

test('the oldest version is found by bisection', async () => {
  let requests = 0;
  const respond = (url) => {
    requests += 1;
    assert.equal(url.searchParams.get('resourceVersionMatch'), 'Exact');
    return Number(url.searchParams.get('resourceVersion')) >= 4321 ? [200, { items: [] }] : [410, { message: 'too old' }];
  };
  await withServer(respond, async () => {
    assert.equal(await oldestVersion('/api/v1/pods', '100000', undefined), 4321);
  });
  assert.ok(requests <= 17, `${requests}`);
});

test('a timeline has the versions before the history of the cache, as far as storage has them', async () => {
  const object = (version) => ({ metadata: { name: 'x', resourceVersion: version } });
  const state = (version) => [undefined, '3', '8', '12'].findLast((one) => one === undefined || Number(one) <= version);
  const respondFrom = (oldest) => (url) => {
    const { watch, resourceVersion, fieldSelector, limit } = Object.fromEntries(url.searchParams);
    if (limit) return [200, { metadata: { resourceVersion: '20' }, items: [] }];
    assert.equal(fieldSelector, 'metadata.name=x');
    if (watch && Number(resourceVersion) < 10) return [200, JSON.stringify({ type: 'ERROR', object: { code: 410, message: `too old resource version: ${resourceVersion} (10)` } })];
    if (watch) return [200, ['MODIFIED', 'DELETED'].map((type, index) => JSON.stringify({ type, object: object(String(12 + index)) })).join('\n')];
    if (Number(resourceVersion) < oldest) return [410, { message: 'compacted' }];
    const version = state(Number(resourceVersion));
    return [200, { kind: 'PodList', apiVersion: 'v1', items: version ? [object(version)] : [] }];
  };
  for (const [oldest, expected] of [[1, ['ADDED 3', 'MODIFIED 8', 'MODIFIED 12', 'DELETED 13']], [5, ['RETAINED 3', 'MODIFIED 8', 'MODIFIED 12', 'DELETED 13']], [9, ['RETAINED 8', 'MODIFIED 12', 'DELETED 13']], [11, ['MODIFIED 12', 'DELETED 13']]]) {
    const { versions, current } = await withServer(respondFrom(oldest), () => timeline('/p', 'x', new Clock(), new AbortController().signal));
    assert.deepEqual(versions.map(({ type, version }) => `${type} ${version}`), expected, `${oldest}`);
    assert.equal(current, '20');
  }
});

test('a followed resource is listed in pages, resumed after an end, and listed again after a 410', async () => {
  const watches = [];
  const lists = [];
  const stop = new AbortController();
  const event = (type, version) => `${JSON.stringify({ type, object: { metadata: { name: 'x', resourceVersion: version } } })}\n`;
  const expired = `${JSON.stringify({ type: 'ERROR', object: { code: 410, message: 'too old', reason: 'Expired' } })}\n`;
  const respond = (url) => {
    const parameters = Object.fromEntries(url.searchParams);
    if (!parameters.watch) {
      lists.push(parameters);
      const metadata = { resourceVersion: String(10 * (lists.length)), continue: lists.length === 1 ? 'more' : undefined };
      return [200, { metadata, items: [] }];
    }
    watches.push(parameters.resourceVersion);
    if (watches.length === 1) return [200, event('ADDED', '21') + event('BOOKMARK', '25')];
    if (watches.length === 2) return [200, expired];
    stop.abort();
    return [200, ''];
  };
  const seen = [];
  await withServer(respond, () => api.follow({ path: '/p', parameters: { labelSelector: 'a=b' }, signal: stop.signal, onEvents: (events) => seen.push(...events) }));
  assert.deepEqual(lists.map(({ continue: token, labelSelector }) => [token, labelSelector]), [[undefined, 'a=b'], ['more', 'a=b'], [undefined, 'a=b']]);
  assert.deepEqual(watches, ['20', '25', '30']);
  assert.deepEqual(seen.map(({ type }) => type), ['ADDED']);
});

test('a refused request is an error with the message of its status, and ends following', async () => {
  const respond = () => [403, { message: 'pods is forbidden', reason: 'Forbidden' }];
  await withServer(respond, () => assert.rejects(api.follow({ path: '/p', signal: new AbortController().signal, onEvents: () => {} }), (error) => api.isForbidden(error) && error.message === 'pods is forbidden'));
});

test('lines are complete although chunks divide them', async () => {
  const chunks = ['{"a"', ':1}\n{"b":', '"ä'].map((text) => new TextEncoder().encode(text));
  const last = new TextEncoder().encode('ö"}\n');
  const stream = new ReadableStream({ start(controller) {
    for (const chunk of [...chunks, last.slice(0, 1), last.slice(1)]) controller.enqueue(chunk);
    controller.close();
  } });
  const lines = [];
  for await (const batch of api.lineBatches(stream)) lines.push(...batch);
  assert.deepEqual(lines, ['{"a":1}', '{"b":"äö"}']);
});

test('rows of Tables are sorted, filtered and changed by events', () => {
  const row = (name, cell, namespace = 'n') => ({ cells: [name, cell], object: { metadata: { name, namespace, resourceVersion: '1' } } });
  const store = new RowStore();
  store.addTable({ columnDefinitions: [{ name: 'Name' }, { name: 'Status' }], rows: [row('b', 'Running'), row('a', 'Pending'), row('c', 'Running', 'm')] });
  assert.deepEqual(store.visible.map(({ key }) => key), ['m/c', 'n/a', 'n/b']);
  store.setFilter('RUN n/');
  assert.deepEqual(store.visible.map(({ key }) => key), ['n/b']);
  store.apply({ type: 'MODIFIED', object: { rows: [row('b', 'Failed')] } });
  assert.deepEqual(store.visible, []);
  store.setFilter('');
  store.apply({ type: 'DELETED', object: { rows: [row('a', '')] } });
  assert.deepEqual(store.visible.map(({ cells }) => cells[1]), ['Running', 'Failed']);
  assert.equal(store.columns.length, 2);
});

test('watchers are sorted by lag, parked ones first, and grouped by user agent', () => {
  const watcher = (name, phase, events, userAgent) => ({ metadata: { name }, spec: { userAgent }, status: { phase, lag: { events, bytes: 0, seconds: 0 } } });
  const watchers = [watcher('w-10', 'Live', 5, 'a'), watcher('w-9', 'Live', 5, 'a'), watcher('w-2', 'Parked', 1, 'b'), watcher('w-3', 'CatchingUp', 70, 'a')];
  assert.deepEqual(sortWatchers(watchers).map(({ metadata }) => metadata.name), ['w-2', 'w-3', 'w-9', 'w-10']);
  const clients = byClient(watchers, new Map([['w-9', 3], ['w-10', 4]]));
  assert.deepEqual(clients, [{ name: 'b', watches: 1, parked: 1, rate: 0, lag: 1, lists: 0 }, { name: 'a', watches: 3, parked: 0, rate: 7, lag: 70, lists: 0 }]);
  const listed = (user, userAgent, lists) => ({ user, userAgent, lists });
  const rates = listRates({ clients: [listed('ann', 'c', 10)] }, { clients: [listed('ann', 'c', 30), listed('bob', 'c', 4), listed('ann', 'd', 0)] }, 2);
  assert.deepEqual([...rates], [['c', 12], ['d', 0]]);
  assert.deepEqual(byClient(watchers, new Map(), rates).map(({ name, lists }) => [name, lists]), [['b', 0], ['c', 12], ['a', 0]]);
});

test('a watcher has the age of its oldest unread event, and the short name of its client', () => {
  const status = { phase: 'Expired', lag: { events: 3, bytes: 5, since: '1970-01-01T00:00:07Z' } };
  assert.deepEqual(lagOf({ status }, 9500), { events: 3, bytes: 5, seconds: 2.5 });
  assert.deepEqual(lagOf({ status: { phase: 'Live' } }), { events: 0, bytes: 0, seconds: 0 });
  assert.deepEqual(['Parked', 'Expired', 'Live', 'CatchingUp'].map((phase) => isParked({ status: { phase } })), [true, true, false, false]);
  assert.equal(shortUserAgent('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.1 Safari/537.36'), 'Chrome/140 (browser)');
  assert.equal(shortUserAgent('kubectl/v1.36.1 (linux/amd64)'), 'kubectl/v1.36.1 (linux/amd64)');
});

test('positions on the ring are shares of the history', () => {
  const status = { resourceVersion: '200', history: { oldestResourceVersion: '100' } };
  assert.deepEqual(['50', '100', '150', '200', ''].map((version) => ringPosition(status, version)), [0, 0, 0.5, 1, undefined]);
  assert.equal(ringPosition({ resourceVersion: '200', history: {} }, '150'), undefined);
});

test('addresses of pages are decoded as they were encoded', () => {
  const hash = objectHash({ group: '', version: 'v1', resource: 'configmaps' }, { namespace: 'default', name: 'a/b #c' });
  assert.deepEqual(parseHash(hash), { page: 'object', args: ['core', 'v1', 'configmaps', 'default', 'a/b #c'] });
  assert.deepEqual(parseHash(''), { page: 'overview', args: [] });
  assert.deepEqual(parseHash('#/x/%'), { page: 'x', args: ['%'] });
});

test('numbers are short', () => {
  assert.deepEqual([0, 999, 9999, 12345, 1.234, 2.5e6, NaN].map(format.count), ['0', '999', '9999', '12.3k', '1.23', '2.50M', '-']);
  assert.deepEqual([0, 1023, 1536, 5 * 1024 ** 3].map(format.bytes), ['0 B', '1023 B', '1.50 KiB', '5 GiB']);
  assert.deepEqual([0.0000005, 0.0123, 3, 90].map(format.duration), ['1 µs', '12.3 ms', '3 s', '90s']);
  assert.deepEqual([75, 125, 600, 3 * 3600 + 60, 50 * 3600].map(format.age), ['75s', '2m5s', '10m', '3h1m', '2d']);
  assert.deepEqual([format.plural(1, 'object'), format.plural(0, 'watch', 'watches')], ['1 object', '0 watches']);
});
