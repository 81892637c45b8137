// Reads /metrics every two seconds while the page is visible, and retains five minutes of what the pages show.

import { text } from './api.js';
import { buckets, parse, quantile, rate, sum, sumBy } from './metrics.js';

const INTERVAL = 2000;
/** The time in milliseconds that plots show. */
export const SPAN = 300_000;

const USED = new Set([
  'apiserver_request_total',
  'apiserver_request_duration_seconds_bucket',
  'apiserver_current_inflight_requests',
  'apiserver_watch_events_total',
  'apiserver_watch_cache_events_received_total',
  'apiserver_watch_cache_resource_version',
  'apiserver_resource_objects',
  'apiserver_resource_size_estimate_bytes',
  'apiserver_terminated_watchers_total',
  'watch_cache_capacity',
  'etcd_request_duration_seconds_bucket',
  'etcd_requests_total',
  'etcd_request_errors_total',
  'process_cpu_seconds_total',
  'process_resident_memory_bytes',
  'process_start_time_seconds',
  'watchet_build_info',
  'watchet_memory_limit_bytes',
  'watchet_memory_used_bytes',
  'watchet_encoding_cache_bytes',
  'watchet_watchers',
  'watchet_live_watchers',
  'watchet_parked_watchers_total',
]);

const isRead = (labels) => labels.verb === 'GET' || labels.verb === 'LIST';
const isWrite = (labels) => !isRead(labels) && !['WATCH', 'WATCHLIST', 'CONNECT'].includes(labels.verb);

/** The samples of the server's metrics. */
export class Sampler {
  #listeners = new Set();
  #last = null;
  #timer = null;
  points = [];
  /** The present values; null before the first scrape. */
  current = null;
  error = null;

  /** Begins to sample, until `signal` is aborted. */
  start(signal) {
    const run = async () => {
      if (document.visibilityState !== 'hidden') await this.#sample(signal);
      if (!signal.aborted) this.#timer = setTimeout(run, INTERVAL);
    };
    signal.addEventListener('abort', () => clearTimeout(this.#timer));
    run();
  }

  /** Calls `listener` after each sample, until `signal` is aborted; also now, if there is one. */
  listen(listener, signal) {
    this.#listeners.add(listener);
    signal.addEventListener('abort', () => this.#listeners.delete(listener));
    if (this.current || this.error) listener();
  }

  async #sample(signal) {
    try {
      const metrics = parse(await text('/metrics', { signal }), (name) => USED.has(name));
      this.#add(metrics, Date.now());
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    }
    for (const listener of this.#listeners) listener();
  }

  #add(metrics, time) {
    const last = this.#last;
    const seconds = last ? (time - last.time) / 1000 : 0;
    const perSecond = (name, matches) => {
      if (!last) return NaN;
      const total = (from) => [...sumBy(from, name, '', matches).values()].reduce((one, other) => one + other, 0);
      return rate(total(last.metrics), total(metrics), seconds);
    };
    const latency = (name, matches, q) => (last ? quantile(buckets(last.metrics, name, matches), buckets(metrics, name, matches), q) : NaN);
    const rates = (name, label, matches) => {
      const rates = new Map();
      if (!last) return rates;
      const before = sumBy(last.metrics, name, label, matches);
      for (const [value, total] of sumBy(metrics, name, label, matches)) rates.set(value, rate(before.get(value) ?? 0, total, seconds));
      return rates;
    };
    const watchers = sum(metrics, 'watchet_watchers');
    const parked = watchers - sum(metrics, 'watchet_live_watchers');
    const requestSeconds = 'apiserver_request_duration_seconds';
    const storageSeconds = 'etcd_request_duration_seconds';
    const point = {
      time,
      reads: perSecond('apiserver_request_total', isRead),
      writes: perSecond('apiserver_request_total', isWrite),
      errors: perSecond('apiserver_request_total', (labels) => labels.code >= 500 || labels.code === '429'),
      readP50: latency(requestSeconds, isRead, 0.5),
      readP99: latency(requestSeconds, isRead, 0.99),
      writeP99: latency(requestSeconds, isWrite, 0.99),
      delivered: perSecond('apiserver_watch_events_total'),
      received: perSecond('apiserver_watch_cache_events_received_total'),
      watchers,
      parked: Math.max(0, parked),
      resident: sum(metrics, 'process_resident_memory_bytes'),
      used: sum(metrics, 'watchet_memory_used_bytes'),
      cpu: perSecond('process_cpu_seconds_total'),
      storageP50: latency(storageSeconds, undefined, 0.5),
      storageP99: latency(storageSeconds, undefined, 0.99),
      storageRequests: perSecond('etcd_requests_total'),
    };
    this.points.push(point);
    while (this.points[0].time < time - SPAN) this.points.shift();
    this.current = {
      ...point,
      metrics,
      lists: rates('apiserver_request_total', 'resource', (labels) => labels.verb === 'LIST'),
      events: rates('apiserver_watch_cache_events_received_total', 'resource'),
    };
    this.#last = { metrics, time };
  }
}
