// The rows of a Table, in the order of their keys, with a filter.

/** Returns the key of an object: its namespace and name. */
export function keyOf(metadata) {
  return metadata.namespace ? `${metadata.namespace}/${metadata.name}` : metadata.name;
}

/** Rows by key. Sorts and filters only when the rows are read. */
export class RowStore {
  #rows = new Map();
  #visible = null;
  #filter = '';
  #matches = null;
  columns = [];

  /** Deletes all rows. */
  clear() {
    this.#rows.clear();
    this.#visible = null;
  }

  /** Returns the number of rows without the filter. */
  get size() {
    return this.#rows.size;
  }

  /** Adds the rows of a Table. */
  addTable(table) {
    if (table.columnDefinitions?.length) this.columns = table.columnDefinitions;
    for (const row of table.rows ?? []) this.set(rowOf(row));
  }

  /** Applies a watch event whose object is a Table. */
  apply({ type, object }) {
    if (object.columnDefinitions?.length) this.columns = object.columnDefinitions;
    for (const row of object.rows ?? []) {
      if (type === 'DELETED') this.delete(keyOf(row.object.metadata));
      else this.set(rowOf(row));
    }
  }

  /** Adds or replaces a row. */
  set(row) {
    this.#rows.set(row.key, row);
    this.#visible = null;
  }

  /** Deletes a row. */
  delete(key) {
    if (this.#rows.delete(key)) this.#visible = null;
  }

  /** Returns the row with this key. */
  get(key) {
    return this.#rows.get(key);
  }

  /** Sets the text that rows must contain, in their key or cells; several words must all be contained. */
  setFilter(text) {
    this.#filter = text.trim().toLowerCase();
    const words = this.#filter.split(/\s+/).filter((word) => word !== '');
    this.#matches = words.length === 0 ? null : (row) => words.every((word) => row.text.includes(word));
    this.#visible = null;
  }

  /** Returns the rows that match the filter, in the order of their keys. */
  get visible() {
    if (this.#visible === null) {
      const rows = this.#matches ? [...this.#rows.values()].filter(this.#matches) : [...this.#rows.values()];
      rows.sort((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0));
      this.#visible = rows;
    }
    return this.#visible;
  }
}

/** Returns the part of a Table's row that the console needs: managed fields alone would be most of the memory. */
export function rowOf({ cells, object: { metadata } }) {
  const key = keyOf(metadata);
  return {
    key,
    name: metadata.name,
    namespace: metadata.namespace ?? '',
    version: metadata.resourceVersion,
    created: metadata.creationTimestamp,
    cells,
    text: `${key} ${cells.slice(1).join(' ')}`.toLowerCase(),
  };
}
