// The objects of a resource, as a Table with the server's columns: live, or as of an earlier resourceVersion.

import { TABLE_FORM, follow, isForbidden, listPages, resourcePath } from './api.js';
import { h, note, replace, setText, throttled } from './dom.js';
import { count, plural, since } from './format.js';
import { objectHash, resourceHash } from './routes.js';
import { RowStore } from './store.js';
import { TimeSlider } from './time_slider.js';
import { VirtualList, drawCells } from './virtual_list.js';

const DEFAULT = 'pods';

export const title = 'Objects';

/** What the user chose; retained while other pages are shown. */
const choice = { name: DEFAULT, namespace: '', selector: '', text: '' };

/** Shows the page; the first argument is the name of a resource. */
export async function show({ root, signal, context, args }) {
  const resources = await context.resources();
  if (signal.aborted) return;
  choice.name = args[0] || choice.name;
  const resource = resources.find(({ name, shortNames }) => name === choice.name || shortNames.includes(choice.name));
  if (!resource) {
    replace(root, note('No such resource', `The server serves no resource ${choice.name} that can be listed.`));
    return;
  }
  new Objects(root, signal, context, resources, resource).start();
}

class Objects {
  constructor(root, signal, context, resources, resource) {
    Object.assign(this, { signal, context, resource });
    this.live = new RowStore();
    this.past = null;
    this.status = 'listing';
    this.clock = context.clock(resource.name);
    const select = h('select', { 'aria-label': 'Resource', onchange: () => context.navigate(resourceHash({ name: select.value })) },
      resources.map(({ name }) => h('option', { value: name, selected: name === resource.name }, name)));
    const input = (name, placeholder, properties) => h('input', { type: 'search', placeholder, 'aria-label': placeholder, value: choice[name], ...properties });
    this.namespace = input('namespace', 'namespace', { onchange: () => this.#restart('namespace', this.namespace.value) });
    this.selector = input('selector', 'label selector', { onchange: () => this.#restart('selector', this.selector.value) });
    this.filter = input('text', 'filter ( / )', { id: 'filter', oninput: () => this.#filter() });
    this.state = h('span', { class: 'state' });
    this.head = h('div', { class: 'row head' });
    this.list = new VirtualList({
      rowHeight: context.isNarrow() ? 46 : 28,
      className: 'objects',
      label: `Objects of ${resource.name}`,
      draw: (row, index) => this.#draw(row, this.rows[index]),
      onOpen: (index) => this.#open(this.rows[index]),
    });
    this.rows = [];
    this.slider = new TimeSlider({
      clock: this.clock,
      signal,
      path: () => this.#path(),
      onChange: (version) => this.#travel(version),
    });
    this.message = h('div');
    replace(root,
      h('div', { class: 'toolbar' }, select, resource.namespaced ? this.namespace : null, this.selector, this.filter, this.state),
      this.message, this.head, this.list.element, this.slider.element);
    this.redraw = throttled(() => this.#update());
    context.keys.set('[', () => this.slider.step(-1));
    context.keys.set(']', () => this.slider.step(1));
    context.keys.set('l', () => this.slider.toLive());
    this.ages = setInterval(() => this.list.update(this.rows.length), 10_000);
    signal.addEventListener('abort', () => {
      clearInterval(this.ages);
      this.redraw.cancel();
      this.list.close();
      this.stream?.abort();
      this.travel?.abort();
    });
  }

  #path() {
    return resourcePath(this.resource, this.resource.namespaced ? choice.namespace : '');
  }

  async start() {
    this.stream?.abort();
    this.stream = new AbortController();
    const { signal } = this.stream;
    this.live.clear();
    this.live.setFilter(choice.text);
    replace(this.message);
    try {
      await follow({
        path: this.#path(),
        parameters: { labelSelector: choice.selector },
        accept: TABLE_FORM,
        signal,
        onPage: (page, isFirst) => {
          if (isFirst) this.live.clear();
          for (const row of page.rows ?? []) this.clock.addObject(row.object.metadata);
          this.live.addTable(page);
          this.redraw();
        },
        onSynced: (version) => {
          this.clock.add(version, Date.now());
          this.slider.setCurrent(version);
          this.slider.findOldest();
        },
        onEvents: (events) => {
          const now = Date.now();
          for (const event of events) {
            this.live.apply(event);
            const version = event.object.rows?.[0]?.object.metadata.resourceVersion;
            this.clock.add(version, now);
            this.slider.setCurrent(version);
          }
          this.redraw();
        },
        onStatus: (status) => {
          this.status = status;
          this.redraw();
        },
      });
    } catch (error) {
      if (signal.aborted) return;
      const why = isForbidden(error) ? `This user may not list ${this.resource.name} here. Enter a namespace that the user may read.` : error.message;
      replace(this.message, note('No objects', why));
      this.status = 'stopped';
      this.redraw();
    }
  }

  #restart(field, value) {
    choice[field] = value.trim();
    this.slider.toLive();
    this.start();
  }

  #filter() {
    choice.text = this.filter.value;
    for (const store of [this.live, this.past]) store?.setFilter(choice.text);
    this.redraw();
  }

  /** Lists the state at a version; undefined is the present. */
  async #travel(version) {
    this.travel?.abort();
    this.travel = new AbortController();
    const { signal } = this.travel;
    if (version === undefined) {
      this.past = null;
      this.redraw();
      return;
    }
    const past = new RowStore();
    past.setFilter(choice.text);
    try {
      const parameters = { labelSelector: choice.selector, resourceVersion: version, resourceVersionMatch: 'Exact' };
      for await (const page of listPages(this.#path(), parameters, { accept: TABLE_FORM, signal })) {
        if (signal.aborted) return;
        for (const row of page.rows ?? []) this.clock.addObject(row.object.metadata);
        past.addTable(page);
      }
      this.past = past;
      replace(this.message);
    } catch (error) {
      if (signal.aborted) return;
      replace(this.message, note(`No state at resourceVersion ${version}`, error.message));
      if (error.code === 410) this.slider.findOldest();
    }
    this.slider.draw();
    this.redraw();
  }

  #columns(store) {
    const isNarrow = this.context.isNarrow();
    const shown = store.columns.map((column, index) => ({ ...column, index })).filter(({ priority, name }) => !priority && name !== 'Name');
    return isNarrow ? shown.slice(0, 4) : shown;
  }

  #update() {
    const store = this.past ?? this.live;
    this.rows = store.visible;
    this.columns = this.#columns(store);
    const isNarrow = this.context.isNarrow();
    const hasNamespace = this.resource.namespaced && !choice.namespace;
    const widths = ['minmax(12rem, 3fr)', ...this.columns.map(({ name }) => (name === 'Age' ? '5rem' : 'minmax(4rem, 1fr)'))];
    if (hasNamespace) widths.unshift('minmax(6rem, 1fr)');
    this.list.element.style.setProperty('--columns', widths.join(' '));
    this.head.style.setProperty('--columns', widths.join(' '));
    this.head.hidden = isNarrow;
    drawCells(this.head, [...(hasNamespace ? ['Namespace'] : []), 'Name', ...this.columns.map(({ name }) => name)]);
    this.hasNamespace = hasNamespace;
    this.list.element.classList.toggle('past', this.past !== null);
    this.list.update(this.rows.length);
    const all = plural(store.size, 'object');
    const shown = this.rows.length === store.size ? all : `${count(this.rows.length)} of ${all}`;
    setText(this.state, `${shown}, ${this.past ? 'as of an earlier version' : this.status}`);
    this.state.classList.toggle('live', !this.past && this.status === 'live');
    this.state.dataset.count = store.size;
  }

  #draw(row, object) {
    if (!object) return;
    const cells = this.columns.map(({ index, name, type, format }) => {
      const value = object.cells[index];
      if (name === 'Age' || (type === 'date' && format !== '')) {
        const from = name === 'Age' ? object.created : value;
        return { text: from ? since(from) : String(value ?? ''), className: 'muted' };
      }
      return { text: value === null || value === undefined ? '' : String(value), title: String(value ?? '') };
    });
    const name = { text: object.name, className: 'strong', title: object.key };
    drawCells(row, this.hasNamespace ? [{ text: object.namespace, className: 'muted' }, name, ...cells] : [name, ...cells]);
  }

  #open(object) {
    if (object) this.context.navigate(objectHash(this.resource, object));
  }
}
