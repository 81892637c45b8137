// The time slider: chooses a resourceVersion of the retained history, or the present.

import { oldestVersion } from './history.js';
import { h, setText } from './dom.js';
import { clock as timeOfDay, since } from './format.js';

/** The pause in milliseconds after which a moved slider reads a state. */
const DELAY = 150;

export class TimeSlider {
  /** `path()` is that of the collection; `onChange(version)` reads a state, undefined is the present. */
  constructor({ clock, signal, path, onChange }) {
    Object.assign(this, { clock, signal, path, onChange });
    this.oldest = undefined;
    this.current = undefined;
    this.version = undefined;
    this.input = h('input', { type: 'range', id: 'time', min: 0, max: 0, step: 1, value: 0, disabled: true, 'aria-label': 'Time: resourceVersion', oninput: () => this.#moved() });
    this.from = h('span', { class: 'muted' }, '');
    this.label = h('output', { for: 'time' }, 'live');
    this.live = h('button', { type: 'button', title: 'Show the present (l)', onclick: () => this.toLive() }, 'Live');
    const button = (text, direction, title) => h('button', { type: 'button', title, onclick: () => this.step(direction) }, text);
    this.element = h('div', { class: 'slider' },
      button('◀', -1, 'Previous version ( [ )'), this.input, button('▶', 1, 'Next version ( ] )'), this.live, this.label, this.from);
  }

  /** Sets the present version. */
  setCurrent(version) {
    if (version === undefined) return;
    this.current = Math.max(this.current ?? 0, Number(version));
    this.draw();
  }

  /** Finds the oldest version that the server retains. */
  async findOldest() {
    if (this.isSearching || this.current === undefined) return;
    this.isSearching = true;
    try {
      this.oldest = await oldestVersion(this.path(), this.current, this.signal);
    } catch {
      this.oldest = undefined;
    }
    this.isSearching = false;
    this.draw();
    if (this.pending && !this.input.disabled) this.step(this.pending);
    this.pending = 0;
  }

  /** Moves to the previous (-1) or next (1) version at which an object of the resource is known to have changed. */
  step(direction) {
    if (this.input.disabled) {
      // The oldest version is not known yet: step when it is.
      this.pending = direction;
      return;
    }
    const from = this.version ?? this.current;
    const next = this.clock.neighbor(from, direction);
    if (next === undefined || next < this.oldest) {
      if (direction < 0) this.#choose(this.oldest);
      else this.toLive();
      return;
    }
    this.#choose(next);
  }

  /** Returns to the present. */
  toLive() {
    this.#choose(undefined);
  }

  #moved() {
    const version = Number(this.input.value);
    this.#choose(version >= this.current ? undefined : version);
  }

  #choose(version) {
    if (version !== undefined && version >= this.current) version = undefined;
    if (version === this.version) return;
    this.version = version;
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.signal.aborted) this.onChange(version);
    }, version === undefined ? 0 : DELAY);
  }

  /** Draws the position and its time. */
  draw() {
    const { oldest, current, version, input } = this;
    input.disabled = oldest === undefined || current === undefined || oldest >= current;
    if (input.disabled) return;
    input.min = oldest;
    input.max = current;
    input.value = version ?? current;
    const time = version === undefined ? undefined : this.clock.time(version);
    const when = time === undefined ? '' : `, ${timeOfDay(time)} (${since(new Date(time).toISOString())} ago)`;
    setText(this.label, version === undefined ? 'live' : `as of ${version}${when}`);
    this.label.classList.toggle('past', version !== undefined);
    setText(this.from, `history: ${oldest} to ${current}`);
  }
}
