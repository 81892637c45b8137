// The objects of kind Watcher: whether they are served, their order, and their clients.

import { ApiError } from './api.js';

/** Throws a 404 if the server does not serve the group of watchers and watch caches: a request would be an error in the console
 * of the browser. */
export async function checkServed(context) {
  const resources = await context.resources();
  if (!resources.some(({ group }) => group === 'watchet.dev')) throw new ApiError(404, 'the server does not serve watchet.dev');
}

/** Returns the lag of a watcher; zeros if it has none. */
export function lagOf({ status }) {
  return { events: status.lag?.events ?? 0, bytes: status.lag?.bytes ?? 0, seconds: status.lag?.seconds ?? 0 };
}

/** Returns watchers: the parked ones first, then by lag, then by name. */
export function sortWatchers(watchers) {
  const number = ({ metadata }) => Number(metadata.name.replace(/^\D+/, '')) || 0;
  const isParked = ({ status }) => (status.phase === 'Parked' ? 1 : 0);
  return [...watchers].sort((one, other) =>
    isParked(other) - isParked(one) || lagOf(other).events - lagOf(one).events || number(one) - number(other));
}

/** Returns the clients by user agent, those with the highest rate of events first, then by watches. `rates` has the events per
 * second of watchers by name. */
export function byClient(watchers, rates) {
  const clients = new Map();
  for (const watcher of watchers) {
    const name = watcher.spec.userAgent || '(no user agent)';
    const client = clients.get(name) ?? { name, watches: 0, parked: 0, rate: 0, lag: 0 };
    client.watches += 1;
    client.parked += watcher.status.phase === 'Parked' ? 1 : 0;
    client.rate += rates.get(watcher.metadata.name) ?? 0;
    client.lag = Math.max(client.lag, lagOf(watcher).events);
    clients.set(name, client);
  }
  return [...clients.values()].sort((one, other) => other.parked - one.parked || other.rate - one.rate || other.watches - one.watches);
}
