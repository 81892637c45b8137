// A list that creates elements only for the rows in view, so that 20,000 rows cost as much as 40. It is operated by arrow keys,
// Page Up and Down, Home, End and Enter.

import { h, setText } from './dom.js';

/** Rows above and below the view that exist too. */
const MARGIN = 6;
/** The height in pixels above which browsers lose precision. */
const HEIGHT_MAX = 10_000_000;

let lists = 0;

export class VirtualList {
  /**
   * `draw(element, index)` fills the element of a row; `onOpen(index)` is called by Enter and click. `label` describes the list
   * to screen readers.
   */
  constructor({ rowHeight, draw, onOpen = () => {}, onSelect = () => {}, label, className = '' }) {
    lists += 1;
    this.id = `list-${lists}`;
    this.rowHeight = rowHeight;
    this.draw = draw;
    this.onOpen = onOpen;
    this.onSelect = onSelect;
    this.count = 0;
    this.selected = -1;
    this.rows = new Map();
    this.spare = [];
    this.inner = h('div', { class: 'virtual-inner' });
    this.element = h('div', { class: `virtual ${className}`, tabindex: '0', role: 'listbox', 'aria-label': label }, this.inner);
    this.element.addEventListener('scroll', () => this.#place(), { passive: true });
    this.element.addEventListener('keydown', (event) => this.#key(event));
    this.inner.addEventListener('click', (event) => {
      const row = event.target.closest('.row');
      if (!row) return;
      this.select(Number(row.dataset.index));
      this.onOpen(this.selected);
    });
    this.observer = new ResizeObserver(() => this.#place());
    this.observer.observe(this.element);
  }

  /** Sets the number of rows and draws those in view again. */
  update(count) {
    this.count = count;
    if (this.selected >= count) this.selected = count - 1;
    const height = Math.min(count * this.rowHeight, HEIGHT_MAX);
    this.inner.style.height = `${height}px`;
    this.#place(true);
  }

  /** Selects a row and scrolls it into view. */
  select(index) {
    if (this.count === 0) return;
    this.selected = Math.max(0, Math.min(this.count - 1, index));
    const top = this.selected * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) this.element.scrollTop = top + this.rowHeight - clientHeight;
    this.#place(true);
    this.onSelect(this.selected);
  }

  /** Stops observing the element. */
  close() {
    this.observer.disconnect();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const moves = {
      ArrowDown: this.selected + 1,
      j: this.selected + 1,
      ArrowUp: this.selected - 1,
      k: this.selected - 1,
      PageDown: this.selected + page,
      PageUp: this.selected - page,
      Home: 0,
      End: this.count - 1,
    };
    if (event.key in moves) {
      this.select(moves[event.key]);
    } else if (event.key === 'Enter' && this.selected >= 0) {
      this.onOpen(this.selected);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Creates the rows in view, reuses those that left it, and draws new ones, or all. */
  #place(all = false) {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - MARGIN);
    const last = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + MARGIN);
    for (const [index, row] of this.rows) {
      if (index >= first && index < last) continue;
      this.rows.delete(index);
      this.spare.push(row);
    }
    for (let index = first; index < last; index += 1) {
      let row = this.rows.get(index);
      const isNew = row === undefined;
      if (isNew) {
        row = this.spare.pop() ?? this.#newRow();
        row.dataset.index = index;
        row.id = `${this.id}-${index}`;
        row.style.transform = `translateY(${index * this.rowHeight}px)`;
        row.hidden = false;
        this.rows.set(index, row);
      }
      row.classList.toggle('selected', index === this.selected);
      row.setAttribute('aria-selected', index === this.selected);
      if (isNew || all) this.draw(row, index);
    }
    for (const row of this.spare) row.hidden = true;
    if (this.selected >= first && this.selected < last) this.element.setAttribute('aria-activedescendant', `${this.id}-${this.selected}`);
    else this.element.removeAttribute('aria-activedescendant');
  }

  #newRow() {
    const row = h('div', { class: 'row', role: 'option' });
    row.style.height = `${this.rowHeight}px`;
    this.inner.append(row);
    return row;
  }
}

/** Fills the element of a row with cells; elements that exist are reused. */
export function drawCells(row, cells) {
  while (row.childElementCount > cells.length) row.lastElementChild.remove();
  cells.forEach((cell, index) => {
    let element = row.children[index];
    if (!element) {
      element = h('span');
      row.append(element);
    }
    const { text, className = '', title = '' } = typeof cell === 'object' ? cell : { text: String(cell) };
    setText(element, text);
    if (element.className !== `cell ${className}`) element.className = `cell ${className}`;
    if (element.title !== title) element.title = title;
  });
}
