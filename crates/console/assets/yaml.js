// Objects as YAML, as `kubectl get -o yaml` prints them.

/** Words that are not strings in YAML 1.1. */
const RESERVED = /^(?:~|null|true|false|yes|no|on|off|y|n|[-+]?\.?inf|\.nan)$/i;
const NUMBER = /^[-+]?(?:0[xob])?[\d_.]+(?:e[-+]?\d+)?$/i;
/** A date, or digits in groups by colons, which YAML 1.1 reads as a number. */
const DATE_OR_SEXAGESIMAL = /^(?:\d{4}-\d{1,2}-\d{1,2}.*|[-+]?\d[\d_]*(?::[0-5]?\d)+(?:\.\d*)?)$/;
const PLAIN = /^[^\s\-?:,[\]{}#&*!|>'"%@`=<](?:[^\n\r\t:#]|:(?=\S)|(?<=\S)#)*$/;
const INDICATOR_AND_TEXT = /^[-?:=<](?=\S)/;

/** Returns a string as a scalar in one line. */
export function scalar(text) {
  const plain = PLAIN.test(text) || (INDICATOR_AND_TEXT.test(text) && !/[\n\r\t]|: |:$| #/.test(text) && !text.startsWith('<<') && text !== '=');
  // eslint-disable-next-line no-control-regex
  const isPrintable = !/[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufeff]/.test(text);
  if (!isPrintable) return JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  if (text === '' || RESERVED.test(text) || NUMBER.test(text) || DATE_OR_SEXAGESIMAL.test(text) || text !== text.trim() || text === '---' || text === '...') {
    return JSON.stringify(text);
  }
  return plain ? text : `'${text.replaceAll("'", "''")}'`;
}

function isBlock(text) {
  // eslint-disable-next-line no-control-regex
  return text.includes('\n') && !/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\ufeff]/.test(text) && !/^[\s]/.test(text);
}

function block(text, indent, lines, head) {
  const body = text.replace(/\n+$/, '');
  const newlines = text.length - body.length;
  lines.push(`${head}|${newlines === 0 ? '-' : newlines === 1 ? '' : '+'}`);
  const all = newlines > 1 ? body + '\n'.repeat(newlines - 1) : body;
  for (const line of all.split('\n')) lines.push(line === '' ? '' : indent + line);
}

function value(node, indent, head, lines) {
  if (typeof node === 'string') {
    if (isBlock(node)) block(node, indent, lines, `${head} `);
    else lines.push(`${head} ${scalar(node)}`);
  } else if (Array.isArray(node)) {
    if (node.length === 0) lines.push(`${head} []`);
    else {
      lines.push(head);
      list(node, indent.slice(2), lines);
    }
  } else if (node !== null && typeof node === 'object') {
    if (Object.keys(node).length === 0) lines.push(`${head} {}`);
    else {
      lines.push(head);
      map(node, indent, lines);
    }
  } else {
    lines.push(`${head} ${String(node)}`);
  }
}

function map(node, indent, lines) {
  const members = Object.entries(node).sort(([one], [other]) => (one < other ? -1 : 1));
  for (const [name, member] of members) value(member, `${indent}  `, `${indent}${scalar(name)}:`, lines);
}

function list(items, indent, lines) {
  for (const item of items) {
    const begin = lines.length;
    const inner = `${indent}  `;
    if (item !== null && typeof item === 'object' && !Array.isArray(item) && Object.keys(item).length > 0) {
      map(item, inner, lines);
      lines[begin] = `${indent}- ${lines[begin].slice(inner.length)}`;
    } else if (Array.isArray(item) && item.length > 0) {
      list(item, inner, lines);
      lines[begin] = `${indent}- ${lines[begin].slice(inner.length)}`;
    } else {
      value(item, inner, `${indent}-`, lines);
    }
  }
}

/** Returns an object as YAML, its members sorted by name. Managed fields are left out unless requested. */
export function toYaml(object, { managedFields = false } = {}) {
  const { metadata, ...others } = object;
  if (!metadata) return text(others);
  const { managedFields: managed, ...visible } = metadata;
  return text({ ...others, metadata: managedFields && managed ? { ...visible, managedFields: managed } : visible });
}

function text(object) {
  const lines = [];
  map(object, '', lines);
  return `${lines.join('\n')}\n`;
}
