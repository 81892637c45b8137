// The tape: the events of chosen resources as they happen, each with its semantic difference.

import { ApiError, JSON_FORM, currentVersion, follow, get, query, resourcePath } from './api.js';
import { diff, summary } from './diff.js';
import { h, note, replace, setText, throttled, toast } from './dom.js';
import { clock, plural } from './format.js';
import { objectHash } from './routes.js';
import { keyOf } from './store.js';
import { VirtualList, drawCells } from './virtual_list.js';

/** The number of events that the tape retains. */
const EVENTS_MAX = 2000;
/** The number of concurrent requests for previous versions. */
const LOOKUPS = 2;
const DEFAULT = ['configmaps', 'deployments.apps', 'pods'];

export const title = 'Tape';

/** The chosen resources and selector; retained while other pages are shown. */
const choice = { names: DEFAULT, selector: '', text: '' };

/** Shows the page. */
export async function show({ root, signal, context }) {
  const resources = await context.resources();
  if (signal.aborted) return;
  const byName = new Map(resources.map((resource) => [resource.name, resource]));
  new Tape(root, signal, context, byName).start();
}

class Tape {
  constructor(root, signal, context, byName) {
    Object.assign(this, { signal, context, byName });
    this.events = [];
    this.shown = [];
    this.isPaused = false;
    this.total = 0;
    this.lookups = 0;
    this.streams = new Map();
    this.chips = h('div', { class: 'chips' });
    this.state = h('span', { class: 'state' });
    this.add = h('select', { 'aria-label': 'Add a resource', onchange: () => this.#choose(this.add.value) });
    this.selector = h('input', {
      type: 'search', placeholder: 'label selector', 'aria-label': 'Label selector', value: choice.selector,
      onchange: () => this.#select(this.selector.value.trim()),
    });
    this.filter = h('input', {
      type: 'search', id: 'filter', placeholder: 'filter ( / )', 'aria-label': 'Filter by text', value: choice.text,
      oninput: () => {
        choice.text = this.filter.value;
        this.#refilter();
      },
    });
    this.pause = h('button', { type: 'button', onclick: () => this.togglePause() }, 'Pause');
    this.list = new VirtualList({
      rowHeight: context.isNarrow() ? 46 : 28,
      className: 'tape',
      label: 'Events, newest first',
      draw: (row, index) => this.#draw(row, this.shown[this.shown.length - 1 - index]),
      onOpen: (index) => this.#open(this.shown[this.shown.length - 1 - index]),
    });
    this.empty = note('No events yet', 'Events of the chosen resources appear here when objects change.');
    replace(root, h('div', { class: 'toolbar' }, this.chips, this.add, this.selector, this.filter, this.pause, this.state), this.empty, this.list.element);
    this.redraw = throttled(() => this.#update());
    this.limit = context.streamLimit();
    context.keys.set(' ', () => this.togglePause());
    signal.addEventListener('abort', () => {
      this.redraw.cancel();
      this.list.close();
      for (const stream of this.streams.values()) stream.abort();
    });
  }

  start() {
    choice.names = choice.names.filter((name) => this.byName.has(name)).slice(0, this.limit);
    this.#drawChips();
    for (const name of choice.names) this.#follow(name);
    this.redraw();
  }

  togglePause() {
    this.isPaused = !this.isPaused;
    setText(this.pause, this.isPaused ? 'Continue' : 'Pause');
    if (!this.isPaused) this.#refilter();
  }

  #choose(name) {
    if (!name || choice.names.includes(name)) return;
    if (choice.names.length >= this.limit) {
      toast(`At most ${this.limit} resources: this connection (HTTP/1.1) has few streams. Remove one first.`);
      this.add.value = '';
      return;
    }
    choice.names = [...choice.names, name];
    this.#drawChips();
    this.#follow(name);
  }

  #remove(name) {
    choice.names = choice.names.filter((other) => other !== name);
    this.streams.get(name)?.abort();
    this.streams.delete(name);
    this.#drawChips();
  }

  #select(selector) {
    choice.selector = selector;
    for (const name of choice.names) {
      this.streams.get(name)?.abort();
      this.#follow(name);
    }
  }

  #drawChips() {
    replace(this.chips, choice.names.map((name) =>
      h('button', { type: 'button', class: 'chip', title: `Remove ${name}`, onclick: () => this.#remove(name) }, name, h('i', null, '×'))));
    const others = [...this.byName.keys()].filter((name) => !choice.names.includes(name));
    replace(this.add, h('option', { value: '' }, 'add a resource'), others.map((name) => h('option', { value: name }, name)));
  }

  async #follow(name) {
    const stream = new AbortController();
    this.streams.set(name, stream);
    const resource = this.byName.get(name);
    const path = resourcePath(resource);
    const { signal } = stream;
    try {
      const startVersion = await currentVersion(path, { signal });
      await follow({
        path,
        parameters: { labelSelector: choice.selector },
        accept: JSON_FORM,
        signal,
        startVersion,
        onEvents: (events) => this.#receive(resource, events),
      });
    } catch (error) {
      if (signal.aborted) return;
      toast(`${name}: ${error.message}`);
      if (error instanceof ApiError) this.#remove(name);
    }
  }

  #receive(resource, events) {
    const time = Date.now();
    const versions = this.context.clock(resource.name);
    for (const { type, object } of events) {
      const { metadata } = object;
      versions.add(metadata.resourceVersion, time);
      const key = keyOf(metadata);
      const event = { resource, type, object, time, key, change: type === 'MODIFIED' ? null : '' };
      event.text = `${type} ${resource.name} ${key}`.toLowerCase();
      this.events.push(event);
    }
    this.total += events.length;
    if (this.events.length > EVENTS_MAX) this.events.splice(0, this.events.length - EVENTS_MAX);
    if (!this.isPaused) this.redraw();
  }

  #refilter() {
    this.redraw();
  }

  #update() {
    const words = choice.text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const matches = (event) => words.every((word) => event.text.includes(word) || event.change?.toLowerCase().includes(word));
    if (!this.isPaused || words.length > 0) this.shown = words.length === 0 ? this.events.slice() : this.events.filter(matches);
    this.empty.hidden = this.shown.length > 0;
    this.list.element.hidden = this.shown.length === 0;
    this.list.update(this.shown.length);
    setText(this.state, `${plural(this.total, 'event')}${this.isPaused ? ', paused' : ''}`);
  }

  #draw(row, event) {
    if (!event) return;
    if (event.change === null) this.#compare(event);
    const kind = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' }[event.type] ?? '';
    drawCells(row, [
      { text: clock(event.time), className: 'muted' },
      { text: { ADDED: '+', MODIFIED: '~', DELETED: '−' }[event.type] ?? event.type, className: `badge ${kind}`, title: event.type },
      { text: event.resource.resource, className: 'muted' },
      { text: event.key, className: 'strong', title: event.key },
      { text: event.change ?? '', className: 'change', title: event.change ?? '' },
    ]);
  }

  /** Finds the version before the event: on the tape, or in the server's history. */
  async #compare(event) {
    event.change = '';
    const index = this.events.lastIndexOf(event);
    let before;
    for (let at = index - 1; at >= 0 && before === undefined; at -= 1) {
      const other = this.events[at];
      if (other.key === event.key && other.resource === event.resource && other.type !== 'DELETED') before = other.object;
    }
    try {
      if (before === undefined) {
        if (this.lookups >= LOOKUPS) {
          event.change = null;
          setTimeout(this.redraw, 100);
          return;
        }
        before = await this.#previous(event);
      }
      event.change = before ? summary(diff(before, event.object)) || 'no difference' : '';
    } catch {
      event.change = '';
    }
    this.redraw();
  }

  async #previous({ resource, object: { metadata } }) {
    const exact = {
      fieldSelector: `metadata.name=${metadata.name}`,
      resourceVersion: Number(metadata.resourceVersion) - 1,
      resourceVersionMatch: 'Exact',
    };
    this.lookups += 1;
    try {
      const list = await get(resourcePath(resource, metadata.namespace) + query(exact), { signal: this.signal });
      return list.items?.[0];
    } finally {
      this.lookups -= 1;
    }
  }

  #open(event) {
    if (event) this.context.navigate(objectHash(event.resource, event.object.metadata));
  }
}
