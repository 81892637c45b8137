// The Kubernetes API: requests, lists in pages, watches that resume.

/** The number of objects in a page of a list. */
const PAGE = 500;
/** The time in milliseconds after which work on events yields to the browser. */
const SLICE = 8;
const BACKOFF_MIN = 500;
const BACKOFF_MAX = 10000;

/** The media types of the forms of objects. */
export const JSON_FORM = 'application/json';
export const TABLE_FORM = 'application/json;as=Table;v=v1;g=meta.k8s.io';
const DISCOVERY_FORM = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';

let token = null;
let onUnauthorized = () => {};

/** Sets the bearer token of all requests; null if the connection authenticates the user. */
export function setToken(value) {
  token = value;
}

/** Sets the function to call after a 401. */
export function setOnUnauthorized(handler) {
  onUnauthorized = handler;
}

/** The error of a request, with the code and the message of its Status. */
export class ApiError extends Error {
  constructor(code, message, reason) {
    super(message);
    this.name = 'ApiError';
    this.code = code;
    this.reason = reason;
  }
}

/** Returns a query string without empty values. */
export function query(parameters) {
  const present = Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return present.length === 0 ? '' : `?${new URLSearchParams(present)}`;
}

/** Sends a request; throws an ApiError for a response other than 2xx. */
export async function request(path, { method = 'GET', accept = JSON_FORM, body, signal } = {}) {
  const headers = { Accept: accept };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store',
    credentials: 'same-origin',
    referrerPolicy: 'no-referrer',
  });
  if (response.ok) return response;
  const text = await response.text();
  let status = {};
  try {
    status = JSON.parse(text);
  } catch {
    status = { message: text };
  }
  if (response.status === 401) onUnauthorized();
  throw new ApiError(response.status, status.message || response.statusText || `HTTP ${response.status}`, status.reason);
}

/** Returns the JSON document at a path. */
export async function get(path, options) {
  return (await request(path, options)).json();
}

/** Returns the text at a path. */
export async function text(path, options) {
  return (await request(path, { accept: '*/*', ...options })).text();
}

/** Returns the path of a resource, of all namespaces unless one is given. */
export function resourcePath({ group, version, resource }, namespace) {
  const root = group ? `/apis/${group}/${version}` : `/api/${version}`;
  return namespace ? `${root}/namespaces/${encodeURIComponent(namespace)}/${resource}` : `${root}/${resource}`;
}

/** Returns the name of a resource with its group, as `deployments.apps`. */
export function resourceName({ group, resource }) {
  return group ? `${resource}.${group}` : resource;
}

/** Returns the resources that can be listed and watched, in their preferred versions, sorted by name. */
export async function discover(signal) {
  const documents = await Promise.all(['/api', '/apis'].map((path) => get(path, { accept: DISCOVERY_FORM, signal })));
  const found = new Map();
  for (const group of documents.flatMap((document) => document.items ?? [])) {
    const name = group.metadata?.name ?? '';
    for (const version of group.versions ?? []) {
      for (const { resource, responseKind, scope, verbs, shortNames } of version.resources ?? []) {
        const key = resourceName({ group: name, resource });
        if (found.has(key) || !verbs.includes('list') || !verbs.includes('watch')) continue;
        found.set(key, {
          name: key,
          group: name,
          version: version.version,
          resource,
          kind: responseKind?.kind ?? '',
          namespaced: scope === 'Namespaced',
          shortNames: shortNames ?? [],
        });
      }
    }
  }
  return [...found.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** Waits until the browser has handled its events. */
export function nextSlice() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Yields the lines of a response, in arrays: those that are complete after each chunk. */
export async function* lineBatches(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += decoder.decode(value, { stream: true });
      const end = rest.lastIndexOf('\n');
      if (end < 0) continue;
      const complete = rest.slice(0, end);
      rest = rest.slice(end + 1);
      yield complete.split('\n').filter((line) => line !== '');
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (rest !== '') yield [rest];
}

/** Returns the resourceVersion that a watch has reached with this event; undefined if the event has none. */
export function eventVersion({ object }) {
  return object.rows?.[0]?.object?.metadata?.resourceVersion || object.metadata?.resourceVersion || undefined;
}

/** Yields the events of a watch in batches until its end. An ERROR event is thrown as an ApiError. */
export async function* watchBatches(path, parameters, { accept, signal } = {}) {
  const response = await request(path + query({ watch: 'true', allowWatchBookmarks: 'true', ...parameters }), { accept, signal });
  let begin = performance.now();
  for await (const lines of lineBatches(response.body)) {
    let events = [];
    for (const line of lines) {
      const event = JSON.parse(line);
      if (event.type === 'ERROR') {
        if (events.length > 0) yield events;
        const { code, message, reason } = event.object;
        throw new ApiError(code, message, reason);
      }
      events.push(event);
      if (performance.now() - begin > SLICE) {
        yield events;
        events = [];
        await nextSlice();
        begin = performance.now();
      }
    }
    if (events.length > 0) yield events;
  }
}

/** Yields the pages of a list. All pages have the state at the same resourceVersion. */
export async function* listPages(path, parameters, { accept, signal } = {}) {
  let next = undefined;
  do {
    const first = next === undefined;
    const { resourceVersion, resourceVersionMatch, ...others } = parameters ?? {};
    const versions = first ? { resourceVersion, resourceVersionMatch } : {};
    const page = await get(path + query({ limit: PAGE, ...others, ...versions, continue: next }), { accept, signal });
    yield page;
    next = page.metadata?.continue;
    await nextSlice();
  } while (next);
}

/**
 * Lists a resource and follows its changes until `signal` is aborted: lists again after a 410, resumes after an end or an
 * error. Calls `onPage(list, isFirst)`, `onSynced(resourceVersion)`, `onEvents(events)` (without bookmarks) and
 * `onStatus(text, error)` with "listing", "live" or "retrying".
 * With `startVersion` it does not list, but begins with the events after that version; "0" is the present state.
 * Errors 401, 403 and 404 end it: they are thrown.
 */
export async function follow(options) {
  const { path, parameters, accept, signal, onPage, onSynced, onEvents, onStatus = () => {}, startVersion } = options;
  let version = startVersion;
  let backoff = BACKOFF_MIN;
  while (!signal.aborted) {
    try {
      if (version === undefined) {
        onStatus('listing');
        let isFirst = true;
        for await (const page of listPages(path, parameters, { accept, signal })) {
          onPage?.(page, isFirst);
          isFirst = false;
          version = page.metadata.resourceVersion;
        }
        onSynced?.(version);
      }
      onStatus('live');
      const from = version === '0' ? { resourceVersion: '0', sendInitialEvents: undefined } : { resourceVersion: version };
      for await (const events of watchBatches(path, { ...parameters, ...from }, { accept, signal })) {
        backoff = BACKOFF_MIN;
        version = eventVersion(events[events.length - 1]) ?? version;
        const changes = events.filter((event) => event.type !== 'BOOKMARK');
        if (changes.length > 0) onEvents(changes);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && [401, 403, 404, 405].includes(error.code)) throw error;
      if (error instanceof ApiError && error.code === 410) {
        version = undefined;
        if (startVersion !== undefined) version = await currentVersion(path, { signal }).catch(() => undefined);
      }
      onStatus('retrying', error);
    }
    await pause(backoff * (0.5 + Math.random()), signal);
    backoff = Math.min(backoff * 2, BACKOFF_MAX);
  }
}

/** Returns the present resourceVersion of a resource. */
export async function currentVersion(path, { signal } = {}) {
  const list = await get(path + query({ fieldSelector: 'metadata.name=x', limit: 1 }), { signal });
  return list.metadata.resourceVersion;
}

/** Returns true if the error means that the user may not do this. */
export function isForbidden(error) {
  return error instanceof ApiError && error.code === 403;
}
