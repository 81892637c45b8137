// One object: its YAML, the timeline of its retained versions, and the difference between any two of them.

import { JSON_FORM, follow, resourcePath } from './api.js';
import { diff, lineDiff, shortValue, summary, withContext } from './diff.js';
import { h, note, replace, setText, throttled, toast } from './dom.js';
import { clock as timeOfDay } from './format.js';
import { timeline } from './history.js';
import { resourceHash } from './routes.js';
import { toYaml } from './yaml.js';

export const title = 'Object';

/** Shows the page; the arguments are group, version, resource, namespace and name. */
export async function show({ root, signal, context, args }) {
  const [group, version, resource, namespace, name] = args;
  const described = { group: group === 'core' ? '' : group, version, resource };
  described.name = described.group ? `${resource}.${described.group}` : resource;
  new ObjectPage(root, signal, context, described, namespace === '-' ? '' : namespace, name).start();
}

class ObjectPage {
  constructor(root, signal, context, resource, namespace, name) {
    Object.assign(this, { signal, context, resource, namespace, name });
    this.versions = [];
    /** The index of the shown version, and of the one that it is compared with; -1 is none. */
    this.shown = -1;
    this.base = -1;
    this.view = 'yaml';
    this.managed = false;
    this.clock = context.clock(resource.name);
    this.heading = h('h1', null, h('a', { href: resourceHash(resource) }, resource.name), ' ', h('b', null, namespace ? `${namespace}/${name}` : name));
    this.list = h('ol', { class: 'timeline', tabindex: '0', 'aria-label': 'Versions, newest first' });
    this.list.addEventListener('keydown', (event) => this.#key(event));
    this.content = h('div', { class: 'content', tabindex: '0', 'aria-label': 'Object' });
    const tab = (view, text, key) => h('button', { type: 'button', 'data-view': view, title: `Key: ${key}`, onclick: () => this.#setView(view) }, text);
    this.tabs = h('div', { class: 'tabs', role: 'group', 'aria-label': 'View' }, tab('yaml', 'YAML', 'y'), tab('diff', 'Diff', 'd'), tab('changes', 'Changes', 'c'));
    this.fields = h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (event) => { this.managed = event.target.checked; this.#draw(); } }), 'managed fields');
    this.copy = h('button', { type: 'button', onclick: () => this.#copy() }, 'Copy');
    this.state = h('span', { class: 'state' });
    replace(root,
      h('div', { class: 'toolbar' }, this.heading, this.tabs, this.fields, this.copy, this.state),
      h('div', { class: 'object' }, h('aside', null, h('h2', null, 'Timeline'), this.list, h('p', { class: 'muted hint' }, 'Click: show. Shift+click or “Compare”: compare with it.')), this.content));
    this.redraw = throttled(() => this.#draw());
    for (const [key, view] of [['y', 'yaml'], ['d', 'diff'], ['c', 'changes']]) context.keys.set(key, () => this.#setView(view));
    context.keys.set('[', () => this.#move(-1));
    context.keys.set(']', () => this.#move(1));
    signal.addEventListener('abort', () => this.redraw.cancel());
  }

  async start() {
    const path = resourcePath(this.resource, this.namespace);
    try {
      setText(this.state, 'reading history');
      const { versions, current } = await timeline(path, this.name, this.clock, this.signal);
      this.versions = versions;
      this.shown = versions.length - 1;
      this.base = versions.length - 2;
      this.#draw();
      await follow({
        path,
        parameters: { fieldSelector: `metadata.name=${this.name}` },
        accept: JSON_FORM,
        signal: this.signal,
        startVersion: current,
        onEvents: (events) => this.#receive(events),
        onStatus: (status) => setText(this.state, status),
      });
    } catch (error) {
      if (!this.signal.aborted) replace(this.content, note('The object cannot be read', error.message));
    }
  }

  #receive(events) {
    const wasLast = this.shown === this.versions.length - 1;
    const last = Number(this.versions[this.versions.length - 1]?.version ?? 0);
    for (const { type, object } of events) {
      const version = object.metadata.resourceVersion;
      if (Number(version) <= last) continue;
      this.clock.add(version, Date.now());
      this.versions.push({ type, object, version, time: Date.now() });
    }
    if (wasLast && this.view !== 'diff') this.shown = this.versions.length - 1;
    if (wasLast && this.view === 'diff') {
      this.base = this.versions.length - 2;
      this.shown = this.versions.length - 1;
    }
    this.redraw();
  }

  #setView(view) {
    this.view = view;
    if (view !== 'yaml' && this.base < 0 && this.shown > 0) this.base = this.shown - 1;
    this.#draw();
  }

  #move(direction) {
    this.#show(Math.max(0, Math.min(this.versions.length - 1, this.shown + direction)));
  }

  #show(index) {
    this.shown = index;
    this.base = index - 1;
    this.#draw();
    this.list.querySelector('.shown')?.scrollIntoView({ block: 'nearest' });
  }

  #compare(index) {
    this.base = index;
    if (this.view === 'yaml') this.view = 'diff';
    this.#draw();
  }

  #key(event) {
    const moves = { ArrowDown: -1, j: -1, ArrowUp: 1, k: 1 };
    if (event.ctrlKey || event.metaKey || !(event.key in moves)) return;
    this.#move(moves[event.key]);
    event.preventDefault();
    event.stopPropagation();
  }

  #draw() {
    for (const tab of this.tabs.children) tab.setAttribute('aria-pressed', tab.dataset.view === this.view);
    this.fields.hidden = this.view === 'changes';
    const items = this.versions.map((version, index) => this.#item(version, index));
    replace(this.list, items.reverse());
    const { [this.shown]: shown, [this.base]: base } = this.versions;
    if (!shown) {
      replace(this.content, note('No versions', 'The object does not exist, and the retained history has no version of it.'));
      return;
    }
    if (this.view === 'yaml') replace(this.content, h('pre', { class: 'yaml' }, yamlLines(this.#yaml(shown))));
    else if (this.view === 'diff') replace(this.content, this.#diff(base, shown));
    else replace(this.content, this.#changes(base, shown));
  }

  #item(version, index) {
    const { type, object } = version;
    const before = this.versions[index - 1]?.object;
    const text = type === 'MODIFIED' && before ? summary(diff(before, object), 3) || 'no difference' : { ADDED: 'created', DELETED: 'deleted', RETAINED: 'oldest retained', MODIFIED: 'changed' }[type];
    const compare = h('button', { type: 'button', class: 'small', title: 'Compare the shown version with this one', onclick: (event) => { event.stopPropagation(); this.#compare(index); } }, 'Compare');
    const className = [index === this.shown ? 'shown' : '', index === this.base && this.view !== 'yaml' ? 'base' : '', type.toLowerCase()].join(' ');
    return h('li', { class: className, 'aria-current': index === this.shown ? 'true' : undefined, onclick: (event) => (event.shiftKey ? this.#compare(index) : this.#show(index)) },
      h('div', null, h('b', null, version.version), ' ', h('span', { class: 'muted' }, version.time ? timeOfDay(version.time) : ''), index === this.shown ? null : compare),
      h('div', { class: 'what', title: text }, text));
  }

  #yaml({ object }) {
    return toYaml(object, { managedFields: this.managed });
  }

  #diff(base, shown) {
    const lines = withContext(lineDiff(base ? this.#yaml(base) : '', this.#yaml(shown)));
    const from = base ? `resourceVersion ${base.version}` : 'nothing';
    const classes = { '+': 'plus', '-': 'minus', '…': 'skip', ' ': '' };
    return h('div', null, h('p', { class: 'muted' }, `From ${from} to ${shown.version}`),
      h('pre', { class: 'diff' }, lines.map(({ sign, text }) => h('span', { class: classes[sign] }, `${sign} ${text}\n`))));
  }

  #changes(base, shown) {
    const changes = diff(base?.object, shown.object);
    if (changes.length === 0) return note('No difference', 'The two versions differ at most in resourceVersion, generation and managed fields.');
    return h('table', { class: 'changes' },
      h('thead', null, h('tr', null, h('th', null, 'field'), h('th', null, base ? base.version : 'before'), h('th', null, shown.version))),
      h('tbody', null, changes.map(({ path, before, after }) => h('tr', null, h('th', { scope: 'row' }, path), h('td', { class: 'minus' }, shortValue(before, 300)), h('td', { class: 'plus' }, shortValue(after, 300))))));
  }

  async #copy() {
    const shown = this.versions[this.shown];
    if (!shown) return;
    try {
      await navigator.clipboard.writeText(this.#yaml(shown));
      toast('Copied the YAML.');
    } catch (error) {
      toast(`The browser did not allow it: ${error.message}`);
    }
  }
}

/** Returns the lines of YAML with their keys marked. */
function yamlLines(yaml) {
  return yaml.split('\n').map((line) => {
    const match = /^(\s*(?:- )*)([\w./-]+|'[^']*'|"[^"]*")(:)(.*)$/.exec(line);
    return match ? [match[1], h('span', { class: 'key' }, match[2] + match[3]), `${match[4]}\n`] : `${line}\n`;
  });
}
