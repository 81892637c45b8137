// The metrics of the server: parses the text of /metrics, and computes rates and quantiles from two scrapes.

/** Parses metrics in the text format; returns the samples, by name, of names that `isUsed` accepts. */
export function parse(text, isUsed = () => true) {
  const metrics = new Map();
  let begin = 0;
  while (begin < text.length) {
    let end = text.indexOf('\n', begin);
    if (end < 0) end = text.length;
    if (text[begin] !== '#' && end > begin) {
      const brace = text.indexOf('{', begin);
      const space = text.indexOf(' ', begin);
      const isLabeled = brace >= 0 && brace < end && brace < space;
      const name = text.slice(begin, isLabeled ? brace : space);
      if (isUsed(name)) {
        const line = text.slice(begin, end);
        const close = isLabeled ? line.lastIndexOf('}') : name.length - 1;
        const labels = isLabeled ? parseLabels(line.slice(name.length + 1, close)) : {};
        const value = number(line.slice(close + 2).split(' ')[0]);
        if (!metrics.has(name)) metrics.set(name, []);
        metrics.get(name).push({ labels, value });
      }
    }
    begin = end + 1;
  }
  return metrics;
}

function number(text) {
  if (text === '+Inf') return Infinity;
  if (text === '-Inf') return -Infinity;
  return Number(text);
}

function parseLabels(text) {
  const labels = {};
  const pattern = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
  for (const [, name, value] of text.matchAll(pattern)) {
    labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
  }
  return labels;
}

/** Returns the sum of the samples of a metric that have these labels. */
export function sum(metrics, name, labels = {}) {
  let total = 0;
  for (const sample of metrics.get(name) ?? []) {
    if (Object.entries(labels).every(([label, value]) => sample.labels[label] === value)) total += sample.value;
  }
  return total;
}

/** Returns the sums of the samples of a metric by the value of a label. */
export function sumBy(metrics, name, label, matches = () => true) {
  const sums = new Map();
  for (const { labels, value } of metrics.get(name) ?? []) {
    if (matches(labels)) sums.set(labels[label] ?? '', (sums.get(labels[label] ?? '') ?? 0) + value);
  }
  return sums;
}

/** Returns the increase per second of a counter; a counter that fell was reset. */
export function rate(before, after, seconds) {
  if (before === undefined || seconds <= 0) return 0;
  return Math.max(0, after - before) / seconds;
}

/** Returns the counts of a histogram's buckets, by their upper bounds. */
export function buckets(metrics, name, matches = () => true) {
  const counts = new Map();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    if (!matches(labels)) continue;
    const bound = number(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  return counts;
}

/** Returns the quantile of the observations between two scrapes; NaN if there were none. */
export function quantile(before, after, q) {
  const bounds = [...after.keys()].sort((one, other) => one - other);
  const counts = bounds.map((bound) => after.get(bound) - (before.get(bound) ?? 0));
  const total = counts[counts.length - 1] ?? 0;
  if (!(total > 0)) return NaN;
  const rank = q * total;
  const index = counts.findIndex((value) => value >= rank);
  const low = index > 0 ? bounds[index - 1] : 0;
  if (bounds[index] === Infinity) return low;
  const inside = counts[index] - (index > 0 ? counts[index - 1] : 0);
  const share = inside > 0 ? (rank - (index > 0 ? counts[index - 1] : 0)) / inside : 1;
  return low + share * (bounds[index] - low);
}
