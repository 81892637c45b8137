// Numbers, sizes and times as short text.

/** Returns a number with a unit prefix: 1234 as "1.2k". */
export function count(value) {
  if (!Number.isFinite(value)) return '-';
  const absolute = Math.abs(value);
  for (const [factor, unit] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (absolute >= factor) return short(value / (unit === 'k' ? 1e3 : factor)) + unit;
  }
  return short(value);
}

function short(value) {
  const absolute = Math.abs(value);
  if (Number.isInteger(value) && absolute < 10000) return String(value);
  return absolute >= 100 ? value.toFixed(0) : absolute >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Returns a number of things: "1 object", "2 objects". */
export function plural(value, singular, several = `${singular}s`) {
  return `${count(value)} ${value === 1 ? singular : several}`;
}

/** Returns a size in bytes: 1536 as "1.50 KiB". */
export function bytes(value) {
  if (!Number.isFinite(value)) return '-';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : short(value)} ${units[unit]}`;
}

/** Returns a duration in seconds: 0.0123 as "12.3 ms", 90 as "1m30s". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '-';
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${short(seconds * 1000)} ms`;
  if (seconds < 10) return `${short(seconds)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  return age(seconds);
}

/** Returns an age in seconds as kubectl prints it: "75s", "12m", "3h20m", "5d". */
export function age(seconds) {
  if (!Number.isFinite(seconds)) return '-';
  seconds = Math.max(0, Math.floor(seconds));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

/** Returns the age of a timestamp in RFC 3339. */
export function since(timestamp, now = Date.now()) {
  return age((now - Date.parse(timestamp)) / 1000);
}

/** Returns a time of the day, from milliseconds. */
export function clock(milliseconds) {
  if (!Number.isFinite(milliseconds)) return '-';
  const date = new Date(milliseconds);
  const two = (number) => String(number).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
