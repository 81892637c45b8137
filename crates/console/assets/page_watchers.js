// The watchers: each open watch with its lag, the clients that have most of them, and the lists per second.

import { JSON_FORM, follow, get, request } from './api.js';
import { h, note, replace, setText, throttled, toast } from './dom.js';
import { bytes, count, duration, plural, since } from './format.js';
import { byClient, checkServed, isParked, lagOf, listRates, shortUserAgent, sortWatchers } from './watchers.js';
import { VirtualList, drawCells } from './virtual_list.js';

/** The pause in milliseconds between two requests for the numbers of lists. */
const LISTS_INTERVAL = 2000;
const PATH = '/apis/watchet.dev/v1alpha1/watchers';

export const title = 'Watchers';

const choice = { text: '', onlyParked: false };

/** Shows the page. */
export async function show({ root, signal, context }) {
  new Watchers(root, signal, context).start();
}

class Watchers {
  constructor(root, signal, context) {
    Object.assign(this, { signal, context });
    this.watchers = new Map();
    this.rates = new Map();
    this.listRates = new Map();
    this.rows = [];
    this.filter = h('input', { type: 'search', id: 'filter', placeholder: 'filter ( / )', 'aria-label': 'Filter by text', value: choice.text, oninput: () => { choice.text = this.filter.value; this.redraw(); } });
    this.parked = h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: choice.onlyParked, onchange: (event) => { choice.onlyParked = event.target.checked; this.redraw(); } }), 'parked only');
    this.end = h('button', { type: 'button', disabled: true, title: 'End the selected watch (Delete)', onclick: () => this.#end() }, 'End watch');
    this.state = h('span', { class: 'state' });
    this.head = h('div', { class: 'row head' });
    const widths = '4.5rem 6rem minmax(6rem, 1.3fr) minmax(7rem, 2fr) minmax(6rem, 1.5fr) 5rem 6rem 5.5rem 5rem';
    this.list = new VirtualList({
      rowHeight: context.isNarrow() ? 46 : 28,
      className: 'watchers',
      label: 'Watches, the slowest first',
      draw: (row, index) => this.#draw(row, this.rows[index]),
      onSelect: () => { this.end.disabled = false; },
    });
    for (const element of [this.list.element, this.head]) element.style.setProperty('--columns', widths);
    this.head.hidden = context.isNarrow();
    drawCells(this.head, ['name', 'phase', 'resource', 'user agent', 'user', 'lag', 'behind', 'sent', 'age']);
    this.message = h('div');
    this.clients = h('div', { class: 'card table' });
    this.lists = h('div', { class: 'card table' });
    replace(root, h('div', { class: 'toolbar' }, h('h1', null, 'Watchers'), this.filter, this.parked, this.end, this.state),
      this.message, h('div', { class: 'pair' }, this.clients, this.lists), this.head, this.list.element);
    this.redraw = throttled(() => this.#update(), 250);
    context.keys.set('Delete', () => this.#end());
    context.sampler.listen(() => this.#drawLists(), signal);
    signal.addEventListener('abort', () => {
      this.redraw.cancel();
      this.list.close();
    });
  }

  async start() {
    const set = (object) => {
      const before = this.watchers.get(object.metadata.name);
      const now = performance.now();
      if (before && now > before.time) {
        const events = (object.status.sentEvents - before.object.status.sentEvents) / ((now - before.time) / 1000);
        this.rates.set(object.metadata.name, Math.max(0, events));
      }
      this.watchers.set(object.metadata.name, { object, time: now });
    };
    try {
      await checkServed(this.context);
      this.#countLists();
      await follow({
        path: PATH,
        accept: JSON_FORM,
        signal: this.signal,
        onPage: (list, isFirst) => {
          if (isFirst) this.watchers.clear();
          for (const object of list.items ?? []) set(object);
          this.redraw();
        },
        onEvents: (events) => {
          for (const { type, object } of events) {
            if (type === 'DELETED') {
              this.watchers.delete(object.metadata.name);
              this.rates.delete(object.metadata.name);
            } else set(object);
          }
          this.redraw();
        },
      });
    } catch (error) {
      if (this.signal.aborted) return;
      this.#explain(error);
    }
  }

  /** Reads the numbers of lists by client; the user may not be allowed to. */
  async #countLists() {
    let last = null;
    const count = async () => {
      const document = await get('/debug/list_clients', { signal: this.signal });
      const time = performance.now();
      if (last) this.listRates = listRates(last.document, document, (time - last.time) / 1000);
      last = { document, time };
      this.redraw();
    };
    try {
      while (!this.signal.aborted) {
        await count();
        await new Promise((resolve) => setTimeout(resolve, LISTS_INTERVAL));
      }
    } catch {
      this.listRates = new Map();
    }
  }

  #explain(error) {
    const texts = {
      403: ['No list of watches', 'This user may not list watchers.watchet.dev. The numbers below are from /metrics.'],
      404: ['No list of watches', 'This server does not serve the API group watchet.dev/v1alpha1. The numbers below are from /metrics.'],
    };
    const [heading, text] = texts[error.code] ?? ['No list of watches', error.message];
    replace(this.message, note(heading, text));
    for (const element of [this.list.element, this.head, this.clients]) element.hidden = true;
    this.isUnavailable = true;
    this.#drawLists();
  }

  #update() {
    const words = choice.text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const all = [...this.watchers.values()].map(({ object }) => object);
    const matches = ({ metadata, spec, status }) => {
      if (choice.onlyParked && !isParked({ status })) return false;
      const text = `${metadata.name} ${status.phase} ${spec.resource}.${spec.group} ${spec.namespace} ${spec.user} ${spec.userAgent}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const selected = this.rows[this.list.selected]?.metadata.name;
    this.rows = sortWatchers(all.filter(matches));
    if (selected !== undefined) this.list.selected = this.rows.findIndex(({ metadata }) => metadata.name === selected);
    this.list.update(this.rows.length);
    const parked = all.filter(isParked).length;
    setText(this.state, `${plural(all.length, 'watch', 'watches')}, ${count(parked)} parked`);
    this.state.dataset.parked = parked;
    const clients = byClient(all, this.rates, this.listRates).slice(0, 8);
    replace(this.clients, h('h2', null, 'Clients'), table(['user agent', 'watches', 'parked', 'LIST/s', 'events/s', 'max lag'],
      clients.map((client) => [shortUserAgent(client.name), count(client.watches), count(client.parked), count(client.lists), count(client.rate), count(client.lag)])));
  }

  #drawLists() {
    const { current } = this.context.sampler;
    if (!current) return;
    const lists = [...current.lists].filter(([, rate]) => rate > 0).sort((one, other) => other[1] - one[1]).slice(0, 8);
    const rows = lists.map(([resource, rate]) => [resource, count(rate)]);
    replace(this.lists, h('h2', null, 'Lists per second'), rows.length === 0 ? h('p', { class: 'muted' }, 'No lists in the last two seconds.') : table(['resource', 'LIST/s'], rows));
    if (this.isUnavailable) setText(this.state, `${count(current.watchers)} watches, ${count(current.parked)} parked`);
  }

  #draw(row, watcher) {
    if (!watcher) return;
    const { metadata, spec, status } = watcher;
    const resource = spec.group ? `${spec.resource}.${spec.group}` : spec.resource;
    const selectors = [spec.labelSelector, spec.fieldSelector].filter((text) => text).join(' ');
    const what = [spec.namespace ? `${spec.namespace}/${resource}` : resource, selectors].filter((text) => text).join(' ');
    const { events, seconds } = lagOf(watcher);
    const phase = { text: status.phase, className: `phase ${status.phase.toLowerCase()}` };
    const name = { text: what, className: 'strong', title: `${what}, ${spec.encoding}, ${spec.form}` };
    if (this.context.isNarrow()) {
      const lag = events > 0 ? `${plural(events, 'event')} behind` : '';
      drawCells(row, [name, phase, { text: lag }, { text: shortUserAgent(spec.userAgent ?? ''), className: 'muted' }]);
      return;
    }
    drawCells(row, [
      { text: metadata.name, className: 'muted' },
      phase,
      name,
      { text: shortUserAgent(spec.userAgent ?? ''), title: spec.userAgent },
      { text: spec.user ?? '', title: `${spec.user}, ${spec.address}` },
      { text: status.lag ? count(events) : '-', title: `${count(events)} events, ${bytes(status.lag?.bytes)}` },
      { text: seconds > 0 ? duration(seconds) : '-' },
      { text: bytes(status.sentBytes), title: `${count(status.sentEvents)} events` },
      { text: since(metadata.creationTimestamp), className: 'muted' },
    ]);
  }

  async #end() {
    const name = this.rows[this.list.selected]?.metadata.name;
    if (name === undefined || !window.confirm(`End the watch ${name}? Its client will watch again.`)) return;
    try {
      await request(`${PATH}/${encodeURIComponent(name)}`, { method: 'DELETE' });
      toast(`Ended the watch ${name}.`);
    } catch (error) {
      toast(`The watch ${name} was not ended: ${error.message}`);
    }
  }
}

function table(head, rows) {
  return h('table', null, h('thead', null, h('tr', null, head.map((text) => h('th', null, text)))),
    h('tbody', null, rows.map((cells) => h('tr', null, cells.map((text, index) => (index === 0 ? h('th', { scope: 'row', title: text }, text) : h('td', null, text)))))));
}
