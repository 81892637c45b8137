// A headless Chromium, driven over the DevTools protocol.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const START_TIMEOUT = 60_000;
const WAIT_TIMEOUT = 60_000;

/** The browser; must be closed. */
export class Browser {
  /** Starts the browser. It accepts the certificates of the server's own CA. */
  static async start(program) {
    const directory = mkdtempSync(path.join(tmpdir(), 'watchet-chromium-'));
    const child = spawn(program, [
      '--headless', '--remote-debugging-port=0', `--user-data-dir=${directory}`, '--no-sandbox', '--disable-gpu',
      '--disable-dev-shm-usage', '--ignore-certificate-errors', '--hide-scrollbars', '--no-first-run', 'about:blank',
    ], { stdio: ['ignore', 'ignore', 'pipe'] });
    let output = '';
    const url = await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`Chromium did not start:\n${output}`)), START_TIMEOUT);
      child.stderr.on('data', (data) => {
        output += data;
        const match = /DevTools listening on (\S+)/.exec(output);
        if (!match) return;
        clearTimeout(timer);
        resolve(match[1]);
      });
      child.on('exit', (code) => reject(new Error(`Chromium exited with ${code}:\n${output}`)));
    });
    const socket = new WebSocket(url);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error(`cannot connect to ${url}`));
    });
    return new Browser(child, directory, socket);
  }

  constructor(child, directory, socket) {
    Object.assign(this, { child, directory, socket });
    this.calls = new Map();
    this.pages = new Map();
    this.last = 0;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
  }

  /** Calls a method of the protocol. */
  call(method, params = {}, sessionId = undefined) {
    this.last += 1;
    const id = this.last;
    this.socket.send(JSON.stringify({ id, method, params, sessionId }));
    return new Promise((resolve, reject) => this.calls.set(id, { resolve, reject, method }));
  }

  #receive(message) {
    if (message.id !== undefined) {
      const { resolve, reject, method } = this.calls.get(message.id);
      this.calls.delete(message.id);
      if (message.error) reject(new Error(`${method}: ${message.error.message}`));
      else resolve(message.result);
    } else {
      this.pages.get(message.sessionId)?.receive(message);
      if (message.method === 'Tracing.dataCollected') this.trace.push(...message.params.value);
      if (message.method === 'Tracing.tracingComplete') this.onTraced(message.params);
    }
  }

  /** Starts a trace of all pages. Returns a function that stops it and returns the longest CPU time of a task on a main thread, in milliseconds. */
  async traceTasks() {
    this.trace = [];
    const traced = new Promise((resolve) => { this.onTraced = resolve; });
    await this.call('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { includedCategories: ['toplevel'], excludedCategories: ['*'] } });
    return async () => {
      await this.call('Tracing.end');
      if ((await traced).dataLossOccurred) throw new Error('the trace is incomplete');
      const threadOf = ({ pid, tid }) => `${pid} ${tid}`;
      const isMain = ({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain';
      const threads = new Set(this.trace.filter(isMain).map(threadOf));
      const times = this.trace.filter((event) => event.tdur !== undefined && threads.has(threadOf(event))).map(({ tdur }) => tdur / 1000);
      if (times.length === 0) throw new Error('the trace has no tasks');
      return times.reduce((one, other) => Math.max(one, other));
    };
  }

  /** Opens a page with own cookies and storage, or a further tab beside `page`. */
  async open(beside = undefined) {
    const browserContextId = beside?.browserContextId ?? (await this.call('Target.createBrowserContext')).browserContextId;
    const { targetId } = await this.call('Target.createTarget', { url: 'about:blank', browserContextId });
    const { sessionId } = await this.call('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, targetId, sessionId, browserContextId);
    this.pages.set(sessionId, page);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page.call(`${domain}.enable`);
    return page;
  }

  /** Closes all pages. */
  async closePages() {
    await Promise.all([...this.pages.values()].map(({ targetId }) => this.call('Target.closeTarget', { targetId })));
    this.pages.clear();
  }

  /** Ends the browser and deletes its files. */
  async close() {
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.child.removeAllListeners('exit');
    this.child.on('exit', () => {});
    const exit = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await Promise.race([ended, exit]);
    this.socket.close();
    // The browser's child processes can still write files.
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 50 });
  }
}

const KEYS = { ' ': ['Space', 32], Enter: ['Enter', 13], Escape: ['Escape', 27], ArrowDown: ['ArrowDown', 40], ArrowUp: ['ArrowUp', 38], End: ['End', 35], Home: ['Home', 36], PageDown: ['PageDown', 34] };

/** A page of the browser. */
export class Page {
  constructor(browser, targetId, sessionId, browserContextId) {
    Object.assign(this, { browser, targetId, sessionId, browserContextId });
    /** The addresses of the requests of the page so far. */
    this.requests = [];
    /** Errors of the console, uncaught exceptions, and violations of the Content Security Policy. */
    this.problems = [];
  }

  call(method, params) {
    return this.browser.call(method, params, this.sessionId);
  }

  receive({ method, params }) {
    if (method === 'Runtime.exceptionThrown') {
      const { exceptionDetails } = params;
      this.problems.push(exceptionDetails.exception?.description ?? exceptionDetails.text);
    } else if (method === 'Runtime.consoleAPICalled' && ['error', 'warning', 'assert'].includes(params.type)) {
      this.problems.push(params.args.map(({ value, description }) => value ?? description).join(' '));
    } else if (method === 'Network.requestWillBeSent') {
      this.requests.push(params.request.url);
    } else if (method === 'Page.javascriptDialogOpening') {
      // The user accepts each question.
      this.call('Page.handleJavaScriptDialog', { accept: true });
    } else if (method === 'Log.entryAdded' && params.entry.level !== 'info' && params.entry.level !== 'verbose') {
      this.problems.push(`${params.entry.text} ${params.entry.url ?? ''}`);
    }
  }

  /** Sets the size of the view, and the color scheme. */
  async emulate({ width, height = 800, scheme = 'light' }) {
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 700 });
    await this.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  }

  /** Opens an address. */
  async navigate(url) {
    await this.call('Page.navigate', { url });
  }

  /** Returns the value of an expression. */
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  /** Waits until an expression is true, and returns its value. */
  async until(expression, what = expression) {
    const end = Date.now() + WAIT_TIMEOUT;
    for (;;) {
      const value = await this.evaluate(expression).catch(() => undefined);
      if (value) return value;
      if (Date.now() > end) throw new Error(`not in ${WAIT_TIMEOUT} ms: ${what}; the page shows:\n${await this.text()}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Waits until the page has sent a request to watch a resource. */
  async untilWatch(resource) {
    const end = Date.now() + WAIT_TIMEOUT;
    while (!this.requests.some((url) => url.includes(`/${resource}?`) && url.includes('watch=true'))) {
      if (Date.now() > end) throw new Error(`no watch of ${resource} in ${WAIT_TIMEOUT} ms: ${this.requests.join('\n')}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Returns the visible text. */
  text() {
    return this.evaluate('document.body.innerText');
  }

  /** Waits until the page shows a text. */
  untilText(text) {
    return this.until(`document.body.innerText.includes(${JSON.stringify(text)})`, `the text ${text}`);
  }

  /** Presses a key, as a user does. */
  async press(key) {
    const [code, windowsVirtualKeyCode] = KEYS[key] ?? [undefined, /\w/.test(key) ? key.toUpperCase().charCodeAt(0) : 0];
    const text = key.length === 1 ? key : key === 'Enter' ? '\r' : undefined;
    await this.call('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', key, code, text, windowsVirtualKeyCode });
    await this.call('Input.dispatchKeyEvent', { type: 'keyUp', key, code, windowsVirtualKeyCode });
  }

  /** Types a text into the focused field. */
  async type(text) {
    await this.call('Input.insertText', { text });
  }

  /** Returns a picture of the view as PNG. */
  async screenshot() {
    const { data } = await this.call('Page.captureScreenshot', { format: 'png' });
    return Buffer.from(data, 'base64');
  }
}
