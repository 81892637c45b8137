// Plots of time series, in SVG.

import { h, replace, s, setText } from './dom.js';

const WIDTH = 320;
const HEIGHT = 96;

/** A plot with a title, the last values as a legend, and a line for each series. */
export class Plot {
  /** `series` has the names, in the order of their colors; `format` makes texts of values. */
  constructor({ title, series, format, help }) {
    this.format = format;
    this.series = series;
    this.legend = series.map((name) => h('b', null, '-'));
    this.maximum = h('span', { class: 'plot-max' }, '');
    this.svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
    this.element = h(
      'figure',
      { class: 'card plot', title: help },
      h('figcaption', null, h('span', null, title), this.maximum),
      this.svg,
      h('div', { class: 'legend' }, series.map((name, index) => h('span', { class: `series-${index}` }, h('i'), `${name} `, this.legend[index]))),
    );
  }

  /** Draws points, each { time, values }, oldest first; a value that is not a number is a gap. */
  draw(points, from, to) {
    let max = 0;
    for (const { values } of points) for (const value of values) if (value > max && Number.isFinite(value)) max = value;
    const top = max === 0 ? 1 : max * 1.1;
    const x = (time) => ((time - from) / (to - from)) * WIDTH;
    const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 4);
    const lines = this.series.map((_, index) => {
      let path = '';
      let isGap = true;
      for (const { time, values } of points) {
        const value = values[index];
        if (!Number.isFinite(value)) {
          isGap = true;
          continue;
        }
        path += `${isGap ? 'M' : 'L'}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
        isGap = false;
      }
      return s('path', { d: path, class: `line series-${index}`, 'vector-effect': 'non-scaling-stroke' });
    });
    const grid = [0.25, 0.5, 0.75].map((share) => s('path', { d: `M0 ${HEIGHT * share}H${WIDTH}`, class: 'grid', 'vector-effect': 'non-scaling-stroke' }));
    replace(this.svg, grid, lines);
    setText(this.maximum, `max ${this.format(max)}`);
    const last = points[points.length - 1]?.values ?? [];
    this.legend.forEach((element, index) => setText(element, this.format(last[index])));
  }
}

/** Returns the path of an arc of a ring around the center (0, 0), from one share of the turn to another. */
export function arc(radius, from, to) {
  const point = (share) => {
    const angle = (share - 0.25) * 2 * Math.PI;
    return `${(radius * Math.cos(angle)).toFixed(2)} ${(radius * Math.sin(angle)).toFixed(2)}`;
  };
  const isLarge = to - from > 0.5 ? 1 : 0;
  return `M${point(from)}A${radius} ${radius} 0 ${isLarge} 1 ${point(to)}`;
}
