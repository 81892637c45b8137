// Semantic differences of two objects: lists of objects are compared by the key of their items, and fields that change with
// every write are left out.

/** The members that identify an item of a list, the first that all items have. */
const KEYS = ['uid', 'name', 'type', 'key', 'containerPort', 'port', 'mountPath', 'ip', 'topologyKey', 'manager'];

/** Fields that change with each write. */
const NOISE = new Set(['metadata.resourceVersion', 'metadata.managedFields', 'metadata.generation']);

function isObject(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** Returns the member that identifies the items of both lists; undefined if they are compared by position. */
export function itemKey(before, after) {
  const items = [...before, ...after];
  if (items.length === 0 || !items.every(isObject)) return undefined;
  const isUnique = (list, key) => new Set(list.map((item) => item[key])).size === list.length;
  return KEYS.find(
    (key) => items.every((item) => ['string', 'number'].includes(typeof item[key])) && isUnique(before, key) && isUnique(after, key),
  );
}

function step(path, member) {
  const name = /^[\w-]+$/.test(member) ? member : `[${member}]`;
  if (path === '') return name;
  return name.startsWith('[') ? path + name : `${path}.${name}`;
}

function walk(path, before, after, changes) {
  if (NOISE.has(path) || Object.is(before, after)) return;
  if (isObject(before) && isObject(after)) {
    for (const member of new Set([...Object.keys(before), ...Object.keys(after)])) {
      walk(step(path, member), before[member], after[member], changes);
    }
    return;
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    const key = itemKey(before, after);
    if (key !== undefined) {
      const index = (list) => new Map(list.map((item) => [String(item[key]), item]));
      const [old, now] = [index(before), index(after)];
      for (const name of new Set([...old.keys(), ...now.keys()])) walk(`${path}[${name}]`, old.get(name), now.get(name), changes);
      return;
    }
    if (![...before, ...after].some(isObject) && isSameSet(before, after)) return;
    if (JSON.stringify(before) === JSON.stringify(after)) return;
    if ([...before, ...after].some(isObject)) {
      for (let at = 0; at < Math.max(before.length, after.length); at += 1) walk(`${path}[${at}]`, before[at], after[at], changes);
      return;
    }
  }
  changes.push({ path, before, after });
}

function isSameSet(before, after) {
  return before.length === after.length && JSON.stringify(before) === JSON.stringify(after);
}

/** Returns the changes between two objects, each as { path, before, after }; an absent value is undefined. */
export function diff(before, after) {
  const changes = [];
  walk('', before ?? {}, after ?? {}, changes);
  return changes;
}

/** Returns a value as short text. */
export function shortValue(value, max = 60) {
  if (value === undefined) return '(none)';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > max ? `${text.slice(0, max - 1)}…` : text;
}

/** Returns changes as one line: `data.hello: world → you, spec.replicas: 1 → 2`. */
export function summary(changes, max = 6) {
  const text = changes.slice(0, max).map(({ path, before, after }) => {
    if (before === undefined) return `+ ${path}: ${shortValue(after)}`;
    if (after === undefined) return `− ${path}`;
    return `${path}: ${shortValue(before)} → ${shortValue(after)}`;
  });
  if (changes.length > max) text.push(`and ${changes.length - max} more`);
  return text.join(', ');
}

/**
 * Returns the lines of two texts with the sign of each: ' ' in both, '-' only before, '+' only after. The longest common
 * subsequence of the lines between the common start and end; texts with too many different lines are replaced as a whole.
 */
export function lineDiff(before, after, cellsMax = 4_000_000) {
  const old = before.split('\n');
  const now = after.split('\n');
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const left = old.slice(start, old.length - end);
  const right = now.slice(start, now.length - end);
  const lines = old.slice(0, start).map((text) => ({ sign: ' ', text }));
  lines.push(...middle(left, right, cellsMax));
  lines.push(...old.slice(old.length - end).map((text) => ({ sign: ' ', text })));
  return lines;
}

function middle(left, right, cellsMax) {
  const width = right.length + 1;
  if ((left.length + 1) * width > cellsMax) {
    return [...left.map((text) => ({ sign: '-', text })), ...right.map((text) => ({ sign: '+', text }))];
  }
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        left[i] === right[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      lines.push({ sign: ' ', text: left[i] });
      i += 1;
      j += 1;
    } else if (j >= right.length || (i < left.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      lines.push({ sign: '-', text: left[i] });
      i += 1;
    } else {
      lines.push({ sign: '+', text: right[j] });
      j += 1;
    }
  }
  return lines;
}

/** Replaces unchanged lines that are more than `context` lines away from a change by one line. */
export function withContext(lines, context = 3) {
  const isNear = new Uint8Array(lines.length);
  lines.forEach(({ sign }, index) => {
    if (sign !== ' ') isNear.fill(1, Math.max(0, index - context), index + context + 1);
  });
  const result = [];
  let skipped = 0;
  const flush = () => {
    if (skipped > 0) result.push({ sign: '…', text: `${skipped} unchanged ${skipped === 1 ? 'line' : 'lines'}` });
    skipped = 0;
  };
  lines.forEach((line, index) => {
    if (!isNear[index]) {
      skipped += 1;
      return;
    }
    flush();
    result.push(line);
  });
  flush();
  return result;
}
