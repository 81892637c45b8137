// The overview: requests, latency, deliveries, memory and storage as plots, and the health checks.

import { text } from './api.js';
import { h, note, replace } from './dom.js';
import { age, bytes, count, duration } from './format.js';
import { sum } from './metrics.js';
import { Plot } from './plots.js';
import { SPAN } from './sampler.js';

const CHECK_INTERVAL = 5000;
/** The time in milliseconds that plots show at least. */
const SPAN_MIN = 60_000;

const PLOTS = [
  { title: 'Requests per second', series: ['reads', 'writes', 'errors'], fields: ['reads', 'writes', 'errors'], format: count, help: 'apiserver_request_total; errors are 429 and 5xx' },
  { title: 'Latency of requests', series: ['reads p50', 'reads p99', 'writes p99'], fields: ['readP50', 'readP99', 'writeP99'], format: duration, help: 'apiserver_request_duration_seconds, without watches' },
  { title: 'Events per second', series: ['delivered', 'changes'], fields: ['delivered', 'received'], format: count, help: 'apiserver_watch_events_total: events to watchers; apiserver_watch_cache_events_received_total: changes in storage' },
  { title: 'Watchers', series: ['open', 'parked'], fields: ['watchers', 'parked'], format: count, help: 'watchet_watchers and watchet_live_watchers; parked watchers read from the history' },
  { title: 'Memory', series: ['resident', 'accounted'], fields: ['resident', 'used'], format: bytes, help: 'process_resident_memory_bytes, watchet_memory_used_bytes' },
  { title: 'CPU cores in use', series: ['cores'], fields: ['cpu'], format: count, help: 'process_cpu_seconds_total' },
  { title: 'Latency of storage', series: ['p50', 'p99'], fields: ['storageP50', 'storageP99'], format: duration, help: 'etcd_request_duration_seconds, for every storage back end' },
  { title: 'Storage requests/s', series: ['requests'], fields: ['storageRequests'], format: count, help: 'etcd_requests_total' },
];

export const title = 'Overview';

/** Shows the page. */
export function show({ root, signal, context }) {
  const facts = h('div', { class: 'facts' });
  const checks = h('div', { class: 'card checks' }, h('h2', null, 'Readiness'), h('p', null, 'Loading.'));
  const plots = PLOTS.map((description) => ({ description, plot: new Plot(description) }));
  const grid = h('div', { class: 'grid' }, plots.map(({ plot }) => plot.element), checks);
  const message = h('div');
  replace(root, message, facts, grid);
  const { sampler } = context;
  sampler.listen(() => {
    if (sampler.error) {
      const why = sampler.error.code === 403 ? 'This user may not read /metrics, so there are no plots.' : sampler.error.message;
      replace(message, note('No metrics', why));
    } else {
      replace(message);
    }
    if (!sampler.current) return;
    drawFacts(facts, sampler.current);
    const to = sampler.current.time;
    // The plots grow to their full span.
    const from = Math.max(to - SPAN, Math.min(sampler.points[0].time, to - SPAN_MIN));
    for (const { description, plot } of plots) {
      const points = sampler.points.map((point) => ({ time: point.time, values: description.fields.map((field) => point[field]) }));
      plot.draw(points, from, to);
    }
  }, signal);
  const check = async () => {
    await drawChecks(checks, signal);
    if (!signal.aborted) setTimeout(check, CHECK_INTERVAL);
  };
  check();
}

function drawFacts(element, current) {
  const { metrics } = current;
  const build = metrics.get('watchet_build_info')?.[0]?.labels ?? {};
  const started = sum(metrics, 'process_start_time_seconds');
  const limit = sum(metrics, 'watchet_memory_limit_bytes');
  const facts = [
    ['up', age(Date.now() / 1000 - started)],
    ['version', build.version ?? build.git_version ?? '-'],
    ['objects', count(sum(metrics, 'apiserver_resource_objects'))],
    ['watchers', count(current.watchers)],
    ['parked', count(current.parked)],
    ['memory', limit > 0 ? `${bytes(current.resident)} of ${bytes(limit)}` : bytes(current.resident)],
  ];
  replace(element, facts.map(([name, value]) => h('div', { class: 'fact' }, h('span', null, name), h('b', null, value))));
}

async function drawChecks(element, signal) {
  let lines;
  try {
    lines = await text('/readyz?verbose', { signal });
  } catch (error) {
    if (signal.aborted) return;
    lines = error.message;
  }
  const rows = lines.split('\n').filter((line) => /^\[[+-]\]/.test(line)).map((line) => {
    const isOk = line.startsWith('[+]');
    return h('li', { class: isOk ? 'ok' : 'bad' }, h('i', null, isOk ? '✓' : '✗'), line.slice(3).replace(/ ok$/, ''));
  });
  const summary = rows.length === 0 ? h('p', null, lines.slice(0, 200)) : h('ul', null, rows);
  replace(element, h('h2', null, 'Readiness'), summary);
}
