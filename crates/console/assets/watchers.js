// The objects of kind Watcher: whether they are served, their order, and their clients.

import { ApiError } from './api.js';

/** Throws a 404 if the server does not serve the group of watchers and watch caches: a request would be an error in the console
 * of the browser. */
export async function checkServed(context) {
  const resources = await context.resources();
  if (!resources.some(({ group }) => group === 'watchet.dev')) throw new ApiError(404, 'the server does not serve watchet.dev');
}

/** Returns the lag of a watcher, and the seconds since the oldest event that it has yet to read; zeros if it has none. */
export function lagOf({ status }, now = Date.now()) {
  return { events: status.lag?.events ?? 0, bytes: status.lag?.bytes ?? 0, seconds: secondsSince(status.lag?.since, now) ?? 0 };
}

/** Returns the seconds since a timestamp; undefined without one. */
export function secondsSince(timestamp, now = Date.now()) {
  return timestamp ? Math.max(0, (now - Date.parse(timestamp)) / 1000) : undefined;
}

/** Returns true if the client of a watcher reads too slowly, so that it is behind the events in memory. */
export function isParked({ status }) {
  return status.phase === 'Parked' || status.phase === 'Expired';
}

/** Returns a user agent as short text: of a browser, its name and version; of other clients, the program. */
export function shortUserAgent(userAgent) {
  const browser = /^Mozilla\/.*?\b((?:Firefox|Edg|OPR|HeadlessChrome|Chrome|Version)\/\d+)/.exec(userAgent);
  return browser ? `${browser[1].replace('Version', 'Safari')} (browser)` : userAgent;
}

/** Returns watchers: the parked ones first, then by lag, then by name. */
export function sortWatchers(watchers) {
  const number = ({ metadata }) => Number(metadata.name.replace(/^\D+/, '')) || 0;
  return [...watchers].sort((one, other) =>
    Number(isParked(other)) - Number(isParked(one)) || lagOf(other).events - lagOf(one).events || number(one) - number(other));
}

function newClient(name) {
  return { name, watches: 0, parked: 0, rate: 0, lag: 0, lists: 0 };
}

/** Returns the lists per second by user agent, from two responses of /debug/list_clients. */
export function listRates(before, after, seconds) {
  const key = ({ user, userAgent }) => JSON.stringify([user, userAgent]);
  const earlier = new Map(before.clients.map((client) => [key(client), client.lists]));
  const rates = new Map();
  for (const client of after.clients) {
    const lists = client.lists - (earlier.get(key(client)) ?? 0);
    rates.set(client.userAgent, (rates.get(client.userAgent) ?? 0) + Math.max(0, lists) / seconds);
  }
  return rates;
}

/** Returns the clients by user agent: those with parked watches first, then by their events and lists per second, then by watches.
 * `rates` has the events per second of watchers by name, `lists` the lists per second by user agent. A list weighs as ten events. */
export function byClient(watchers, rates, lists = new Map()) {
  const clients = new Map();
  for (const watcher of watchers) {
    const name = watcher.spec.userAgent || '(no user agent)';
    const client = clients.get(name) ?? newClient(name);
    client.watches += 1;
    client.parked += isParked(watcher) ? 1 : 0;
    client.rate += rates.get(watcher.metadata.name) ?? 0;
    client.lag = Math.max(client.lag, lagOf(watcher).events);
    clients.set(name, client);
  }
  for (const [agent, rate] of lists) {
    const name = agent || '(no user agent)';
    const client = clients.get(name) ?? newClient(name);
    client.lists += rate;
    if (client.watches > 0 || rate > 0) clients.set(name, client);
  }
  const heat = ({ rate, lists }) => rate + 10 * lists;
  return [...clients.values()].sort((one, other) => other.parked - one.parked || heat(other) - heat(one) || other.watches - one.watches);
}
