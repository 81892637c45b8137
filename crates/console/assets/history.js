// The retained history: which resourceVersions can be read, and the times that belong to them.

import { ApiError, JSON_FORM, currentVersion, eventVersion, get, query, watchBatches } from './api.js';

/** Times of resourceVersions: exact for those that were seen, interpolated between them. */
export class Clock {
  constructor() {
    this.versions = [];
    this.times = [];
  }

  /** Adds a version and its time in milliseconds. */
  add(version, time) {
    version = Number(version);
    if (!Number.isFinite(version) || !Number.isFinite(time)) return;
    const index = this.#index(version);
    if (this.versions[index] === version) {
      this.times[index] = Math.min(this.times[index], time);
      return;
    }
    if (index === this.versions.length) {
      this.versions.push(version);
      this.times.push(time);
      return;
    }
    this.versions.splice(index, 0, version);
    this.times.splice(index, 0, time);
  }

  /** Adds the version of an object and the time of its last change, if its managed fields have that. */
  addObject(metadata) {
    const time = changeTime(metadata);
    if (time !== undefined) this.add(metadata.resourceVersion, time);
  }

  /** Returns the time of a version, or an estimate; undefined if nothing is known. */
  time(version) {
    version = Number(version);
    const { versions, times } = this;
    if (versions.length === 0) return undefined;
    const index = this.#index(version);
    if (versions[index] === version) return times[index];
    if (index === 0) return undefined;
    if (index === versions.length) return times[index - 1];
    const share = (version - versions[index - 1]) / (versions[index] - versions[index - 1]);
    return times[index - 1] + share * (times[index] - times[index - 1]);
  }

  /** Returns the known version before (-1) or after (1) a version; undefined if there is none. */
  neighbor(version, direction) {
    version = Number(version);
    const index = this.#index(version);
    if (direction < 0) return this.versions[index - 1];
    return this.versions[this.versions[index] === version ? index + 1 : index];
  }

  /** The index of the first version that is not less. */
  #index(version) {
    let low = 0;
    let high = this.versions.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.versions[middle] < version) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Returns the time of the last change in milliseconds, from the managed fields; undefined without them. */
export function changeTime(metadata) {
  let last;
  for (const { time } of metadata.managedFields ?? []) {
    const parsed = Date.parse(time);
    if (parsed > (last ?? -Infinity)) last = parsed;
  }
  return last;
}

/**
 * Returns the oldest resourceVersion at which the resource can be listed, by bisection: lists of one name that does not
 * exist, which cost the server a look-up each.
 */
export async function oldestVersion(path, current, signal) {
  const canList = async (version) => {
    const exact = { resourceVersion: version, resourceVersionMatch: 'Exact', fieldSelector: 'metadata.name=x' };
    try {
      await get(path + query(exact), { signal });
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.code === 410) return false;
      throw error;
    }
  };
  let low = 1;
  let high = Number(current);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (await canList(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The number of events of an object after which its timeline is cut, and of the versions before them. */
const EVENTS_MAX = 2000;
const EARLIER_MAX = 50;

/**
 * Returns the retained versions of an object, oldest first, each as { type, object, version, time }, and the present
 * resourceVersion of the collection. A watch from the oldest version of the cache gives the events since; lists at exact versions
 * give those before, as far as storage has them.
 */
export async function timeline(collection, name, clock, signal) {
  const parameters = { fieldSelector: `metadata.name=${name}` };
  const current = await currentVersion(collection, { signal });
  let from = '1';
  let events;
  try {
    events = await eventsSince(collection, parameters, from, current, signal);
  } catch (error) {
    if (!(error instanceof ApiError && error.code === 410)) throw error;
    from = oldestOf(error) ?? current;
    events = await eventsSince(collection, parameters, from, current, signal);
  }
  const earlier = from === '1' ? [] : await versionsUntil(collection, parameters, from, signal);
  const versions = [...earlier, ...events].map(({ type, object }) => {
    clock.addObject(object.metadata);
    const { resourceVersion } = object.metadata;
    return { type, object, version: resourceVersion, time: clock.time(resourceVersion) };
  });
  return { current, versions };
}

/** Returns the oldest version of the history that a 410 names: "too old resource version: 1 (107)". */
function oldestOf({ message }) {
  return /\((\d+)\)/.exec(message)?.[1];
}

/** Returns the events after a version, until the watch has reached `current`. */
async function eventsSince(collection, parameters, from, current, signal) {
  const events = [];
  const stop = new AbortController();
  const abort = () => stop.abort();
  signal.addEventListener('abort', abort);
  // If there are no events, the end of the timeout shows that the history was read.
  const watch = { ...parameters, resourceVersion: from, timeoutSeconds: 1 };
  try {
    for await (const batch of watchBatches(collection, watch, { accept: JSON_FORM, signal: stop.signal })) {
      events.push(...batch.filter(({ type }) => type !== 'BOOKMARK'));
      if (Number(eventVersion(batch[batch.length - 1])) >= Number(current) || events.length >= EVENTS_MAX) break;
    }
  } finally {
    signal.removeEventListener('abort', abort);
    stop.abort();
  }
  return events;
}

/** Returns the versions of an object up to a resourceVersion: its state there, before that, and so on. */
async function versionsUntil(collection, parameters, until, signal) {
  const versions = [];
  let at = until;
  while (versions.length < EARLIER_MAX) {
    const exact = { ...parameters, resourceVersion: at, resourceVersionMatch: 'Exact' };
    let list;
    try {
      list = await get(collection + query(exact), { signal });
    } catch (error) {
      if (error instanceof ApiError && error.code === 410) break;
      throw error;
    }
    const object = list.items?.[0];
    if (!object) {
      if (versions.length > 0) versions[0].type = 'ADDED';
      return versions;
    }
    versions.unshift({ type: 'MODIFIED', object: withKind(object, list) });
    at = Number(object.metadata.resourceVersion) - 1;
  }
  if (versions.length > 0) versions[0].type = 'RETAINED';
  return versions;
}

/** Returns an item of a list with the kind and version of the list: items have none. */
export function withKind(object, list) {
  const kind = object.kind ?? list.kind?.replace(/List$/, '');
  return { apiVersion: object.apiVersion ?? list.apiVersion, kind, ...object };
}
