// The watch caches: their objects and watchers, and the history of each as a ring.

import { JSON_FORM, follow } from './api.js';
import { h, note, replace, s, setText, throttled } from './dom.js';
import { bytes, count, duration } from './format.js';
import { sumBy } from './metrics.js';
import { arc } from './plots.js';
import { ringPosition } from './ring.js';
import { checkServed, isParked, secondsSince } from './watchers.js';

const PATH = '/apis/watchet.dev/v1alpha1/watchcaches';
const WATCHERS = '/apis/watchet.dev/v1alpha1/watchers';
const CARDS_MAX = 60;

export const title = 'Caches';

const choice = { text: '' };

/** Shows the page. */
export async function show({ root, signal, context }) {
  new Caches(root, signal, context).start();
}

class Caches {
  constructor(root, signal, context) {
    Object.assign(this, { signal, context });
    this.caches = new Map();
    this.watchers = new Map();
    this.filter = h('input', { type: 'search', id: 'filter', placeholder: 'filter ( / )', 'aria-label': 'Filter by text', value: choice.text, oninput: () => { choice.text = this.filter.value; this.redraw(); } });
    this.state = h('span', { class: 'state' });
    this.message = h('div');
    this.grid = h('div', { class: 'caches' });
    replace(root, h('div', { class: 'toolbar' }, h('h1', null, 'Watch caches'), this.filter, this.state), this.message, this.grid);
    this.redraw = throttled(() => this.#update(), 500);
    signal.addEventListener('abort', () => this.redraw.cancel());
  }

  async start() {
    try {
      await checkServed(this.context);
      this.#follow(WATCHERS, this.watchers).catch(() => {});
      await this.#follow(PATH, this.caches);
    } catch (error) {
      if (this.signal.aborted) return;
      const why = { 403: 'This user may not list watchcaches.watchet.dev.', 404: 'This server does not serve the API group watchet.dev/v1alpha1.' }[error.code] ?? error.message;
      replace(this.message, note('No history', `${why} The numbers below are from /metrics, which have no rings.`));
      this.context.sampler.listen(() => this.#fromMetrics(), this.signal);
    }
  }

  #follow(path, objects) {
    return follow({
      path,
      accept: JSON_FORM,
      signal: this.signal,
      onPage: (list, isFirst) => {
        if (isFirst) objects.clear();
        for (const object of list.items ?? []) objects.set(object.metadata.name, object);
        this.redraw();
      },
      onEvents: (events) => {
        for (const { type, object } of events) {
          if (type === 'DELETED') objects.delete(object.metadata.name);
          else objects.set(object.metadata.name, object);
        }
        this.redraw();
      },
    });
  }

  #matching(all) {
    const text = choice.text.trim().toLowerCase();
    const matching = all.filter(({ name }) => name.includes(text));
    setText(this.state, matching.length === all.length ? `${all.length} caches` : `${matching.length} of ${all.length} caches`);
    return matching.slice(0, CARDS_MAX);
  }

  #update() {
    const all = [...this.caches.values()].map((cache) => ({ name: cache.metadata.name, cache }));
    const weight = ({ cache: { status } }) => (status.watchers ?? 0) * 1e6 + (status.history?.events ?? 0);
    all.sort((one, other) => weight(other) - weight(one) || (one.name < other.name ? -1 : 1));
    replace(this.grid, this.#matching(all).map(({ name, cache }) => this.#card(name, cache)));
  }

  #card(name, { spec, status }) {
    const history = status.history ?? {};
    const watchers = [...this.watchers.values()].filter((watcher) => watcher.spec.resource === spec.resource && watcher.spec.group === spec.group);
    const facts = [
      ['objects', `${count(status.objects)}, ${bytes(status.objectBytes)}`],
      ['protobuf', `${count(status.encodings?.objects)} encoded, ${bytes(status.encodings?.bytes)}`],
      ['history', `${count(history.events)} events, ${bytes(history.bytes)}`],
      ['oldest', history.events > 0 ? `${history.oldestResourceVersion}, ${duration(secondsSince(history.since))} ago` : '-'],
      ['version', behind(status)],
      ['watchers', `${count(status.watchers)}, ${count(status.parkedWatchers)} parked`],
      ['relists', count(status.relists)],
    ];
    return h('article', { class: `card cache${status.ready ? '' : ' bad'}`, tabindex: '0' },
      h('h2', null, name, status.ready ? null : h('small', null, status.message || 'not ready')),
      ring(status, watchers),
      h('dl', null, facts.map(([term, value]) => [h('dt', null, term), h('dd', null, value)])));
  }

  #fromMetrics() {
    const { current } = this.context.sampler;
    if (!current) return;
    const { metrics } = current;
    const by = (name) => sumBy(metrics, name, 'resource');
    const [objects, capacity, watchers, live, versions] = ['apiserver_resource_objects', 'watch_cache_capacity', 'watchet_watchers', 'watchet_live_watchers', 'apiserver_watch_cache_resource_version'].map(by);
    const all = [...watchers.keys()].sort().map((name) => ({ name }));
    all.sort((one, other) => (watchers.get(other.name) ?? 0) - (watchers.get(one.name) ?? 0) || (objects.get(other.name) ?? 0) - (objects.get(one.name) ?? 0));
    replace(this.grid, this.#matching(all).map(({ name }) => {
      const facts = [
        ['objects', count(objects.get(name))],
        ['history', capacity.has(name) ? `${count(capacity.get(name))} events` : '-'],
        ['version', String(versions.get(name) ?? '-')],
        ['watchers', `${count(watchers.get(name))}, ${count(Math.max(0, (watchers.get(name) ?? 0) - (live.get(name) ?? 0)))} parked`],
        ['changes', `${count(current.events.get(name) ?? 0)}/s`],
      ];
      return h('article', { class: 'card cache plain', tabindex: '0' }, h('h2', null, name), h('dl', null, facts.map(([term, value]) => [h('dt', null, term), h('dd', null, value)])));
    }));
  }
}

function behind({ resourceVersion, storageResourceVersion }) {
  const difference = Number(storageResourceVersion) - Number(resourceVersion);
  return storageResourceVersion && difference > 0 ? `${resourceVersion}, storage at ${storageResourceVersion}` : resourceVersion || '-';
}

/** Draws the history: the retained versions clockwise from the oldest to the newest, and the positions of watchers. */
function ring(status, watchers) {
  const { history } = status;
  const hasHistory = (history?.events ?? 0) > 0;
  const age = duration(secondsSince(history?.since));
  const dots = watchers.map((watcher) => {
    const position = ringPosition(status, watcher.status.resourceVersion);
    if (position === undefined) return null;
    const angle = (position * 0.92 - 0.25) * 2 * Math.PI;
    const isSlow = isParked(watcher);
    return s('circle', { cx: (38 * Math.cos(angle)).toFixed(2), cy: (38 * Math.sin(angle)).toFixed(2), r: isSlow ? 5 : 3, class: isSlow ? 'dot parked' : 'dot' },
      s('title', null, `${watcher.metadata.name}: ${watcher.status.phase}, at ${watcher.status.resourceVersion}`));
  });
  const label = hasHistory ? `History of ${history.events} events over ${age}` : 'No history';
  return s('svg', { viewBox: '-50 -50 100 100', class: 'ring', role: 'img', 'aria-label': label },
    s('circle', { r: 38, class: 'track' }),
    hasHistory ? s('path', { d: arc(38, 0, 0.92), class: 'filled' }) : null,
    hasHistory ? s('path', { d: 'M0 -44V-32', class: 'mark oldest' }) : null,
    dots,
    s('text', { y: -2, class: 'big' }, count(history?.events ?? 0)),
    s('text', { y: 12, class: 'small' }, hasHistory ? age : 'no events'));
}
