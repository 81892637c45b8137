// The console: login, the pages, and the keys that all pages have.

import { discover, setOnUnauthorized } from './api.js';
import { h, note, replace } from './dom.js';
import { Clock } from './history.js';
import * as caches from './page_caches.js';
import * as object from './page_object.js';
import * as objects from './page_objects.js';
import * as overview from './page_overview.js';
import * as tape from './page_tape.js';
import * as watchers from './page_watchers.js';
import { parseHash } from './routes.js';
import { Sampler } from './sampler.js';
import { forget, hasToken, logIn, logOut } from './session.js';

const PAGES = { overview, tape, watchers, caches, objects };
const HIDDEN_PAGES = { object };
const NARROW = window.matchMedia('(max-width: 700px)');
const THEMES = ['auto', 'light', 'dark'];

const root = document.getElementById('main');
let leave = new AbortController();

const clocks = new Map();
let discovered = null;

const context = {
  sampler: new Sampler(),
  keys: new Map(),
  navigate: (hash) => { location.hash = hash; },
  isNarrow: () => NARROW.matches,
  /** The resources of the server; read again after a failure, or a minute. */
  resources: () => {
    if (!discovered || Date.now() - discovered.time > 60_000) {
      discovered = { time: Date.now(), list: discover() };
      discovered.list.catch(() => { discovered = null; });
    }
    return discovered.list;
  },
  clock: (name) => {
    if (!clocks.has(name)) clocks.set(name, new Clock());
    return clocks.get(name);
  },
  /** The number of watches that a page may open: browsers limit the connections of HTTP/1.1 to six. */
  streamLimit: () => (performance.getEntriesByType('navigation')[0]?.nextHopProtocol === 'http/1.1' ? 3 : 12),
};

function drawNavigation() {
  const links = Object.entries(PAGES).map(([name, { title }], index) => h('a', { href: `#/${name}`, 'data-page': name, title: `Key: ${index + 1}` }, title));
  replace(document.getElementById('nav'), links);
}

function drawTools(user) {
  const theme = h('button', { type: 'button', title: 'Colors: automatic, light, dark', onclick: () => setTheme(THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length]) }, '◐');
  const help = h('button', { type: 'button', title: 'Keys ( ? )', onclick: showHelp }, '?');
  const out = hasToken() ? h('button', { type: 'button', onclick: logOut, title: 'Log out' }, 'Log out') : null;
  replace(document.getElementById('tools'), h('span', { class: 'user', title: user }, user), theme, help, out);
}

function currentTheme() {
  return document.documentElement.dataset.theme ?? 'auto';
}

function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem('watchet-console-theme', theme);
}

const KEYS = [
  ['1 to 5', 'the pages'],
  ['/', 'filter'],
  ['↑ ↓ or j k, Page Up, Page Down, Home, End', 'move in a list'],
  ['Enter', 'open the selected row'],
  ['Esc', 'leave a field, then go back'],
  ['[ and ]', 'previous and next version (objects: time slider)'],
  ['l', 'objects: return to the present'],
  ['y, d, c', 'object: YAML, diff, changes'],
  ['Space', 'tape: pause'],
  ['Delete', 'watchers: end the selected watch'],
];

function showHelp() {
  const dialog = h('dialog', { class: 'card help', 'aria-label': 'Keys', onclose: () => dialog.remove() },
    h('h2', null, 'Keys'), h('dl', null, KEYS.map(([keys, text]) => [h('dt', null, keys), h('dd', null, text)])),
    h('form', { method: 'dialog' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')));
  document.body.append(dialog);
  dialog.showModal();
}

async function showPage() {
  const { page, args } = parseHash(location.hash);
  const shown = PAGES[page] ?? HIDDEN_PAGES[page];
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  context.keys.clear();
  for (const link of document.querySelectorAll('#nav a')) {
    const isCurrent = link.dataset.page === page || (page === 'object' && link.dataset.page === 'objects');
    if (isCurrent) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (!shown) {
    replace(root, note('No such page', `There is no page ${page}.`));
    return;
  }
  document.title = `${shown.title} - watchet console`;
  root.className = `page-${page}`;
  try {
    await shown.show({ root, signal, context, args });
    // The first list takes the keys, so that arrows work without a click.
    if (!signal.aborted) root.querySelector('.virtual, .timeline')?.focus({ preventScroll: true });
  } catch (error) {
    if (!signal.aborted) replace(root, note('The page cannot be shown', error.message));
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const { target } = event;
  const isField = target.matches?.('input:not([type=checkbox]):not([type=range]), select, textarea');
  if (event.key === 'Escape') {
    if (isField || target.matches?.('input')) (root.querySelector('.virtual, .timeline') ?? root).focus();
    else if (!document.querySelector('dialog[open]') && location.hash.startsWith('#/object/')) history.back();
    return;
  }
  if (isField || document.querySelector('dialog[open]')) return;
  if (event.key === ' ' && target.matches?.('button, a, input')) return;
  const page = Object.keys(PAGES)[Number(event.key) - 1];
  if (page !== undefined) context.navigate(`#/${page}`);
  else if (event.key === '/') document.getElementById('filter')?.focus();
  else if (event.key === '?') showHelp();
  else if (context.keys.has(event.key)) context.keys.get(event.key)();
  else return;
  event.preventDefault();
}

async function start() {
  setTheme(localStorage.getItem('watchet-console-theme') ?? 'auto');
  const user = await logIn(root);
  setOnUnauthorized(() => {
    setOnUnauthorized(() => {});
    forget();
    location.reload();
  });
  drawNavigation();
  drawTools(user);
  context.sampler.start(new AbortController().signal);
  window.addEventListener('hashchange', showPage);
  document.addEventListener('keydown', onKey);
  NARROW.addEventListener('change', showPage);
  await showPage();
}

start().catch((error) => replace(root, note('The console cannot start', error.message)));
