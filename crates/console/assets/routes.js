// The addresses of pages: the fragment of the URL.

/** Returns the fragment of the page of an object. */
export function objectHash({ group, version, resource }, { namespace, name }) {
  return `#/${['object', group || 'core', version, resource, namespace || '-', name].map(encodeURIComponent).join('/')}`;
}

/** Returns the fragment of the page of a resource. */
export function resourceHash({ name }) {
  return `#/objects/${encodeURIComponent(name)}`;
}

/** Returns the page and its arguments of a fragment. */
export function parseHash(hash) {
  const [page, ...args] = hash.replace(/^#\/?/, '').split('/').map(decodePart);
  return { page: page || 'overview', args };
}

function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
