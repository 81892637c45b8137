// The view layer: creates DOM elements. No page ever sets HTML from text.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(element.style, value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an HTML element: attributes, listeners as `onclick`, then children. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Creates an SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replaces the children of an element. */
export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets the text of an element, if it differs: an unchanged page causes no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows a short message at the bottom of the page. */
export function toast(text) {
  const element = document.getElementById('toast');
  element.textContent = text;
  element.classList.add('visible');
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => element.classList.remove('visible'), 4000);
}

/** Returns a message that fills the place of content that cannot be shown. */
export function note(title, text) {
  return h('div', { class: 'note', role: 'status' }, h('strong', null, title), text ? h('p', null, text) : null);
}

/** Calls `draw` in the next frame, at most once per `interval` milliseconds; returns a function that requests a call. */
export function throttled(draw, interval = 100) {
  let timer = null;
  let last = 0;
  const request = () => {
    if (timer !== null) return;
    const wait = Math.max(0, last + interval - performance.now());
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      draw();
    }, wait);
  };
  request.cancel = () => {
    clearTimeout(timer);
    timer = null;
  };
  return request;
}
