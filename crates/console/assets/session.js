// The login: the one-time code of a link, a pasted bearer token, or none if the connection authenticates the user.

import { ApiError, get, request, setToken } from './api.js';
import { h, replace } from './dom.js';

/** The time in milliseconds to wait for an answer of another tab. */
const TAB_TIMEOUT = 1000;
const STORAGE_KEY = 'watchet-console';
const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('watchet-console');

function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE_KEY)) ?? null;
  } catch {
    return null;
  }
}

function use(session) {
  setToken(session.token);
  sessionStorage.setItem(STORAGE_KEY, JSON.stringify(session));
}

// A new tab asks the other tabs of this server for their session; session storage is per tab.
channel?.addEventListener('message', ({ data }) => {
  const session = stored();
  if (data === 'ask' && session) channel.postMessage(session);
});

function askOtherTabs() {
  if (!channel) return Promise.resolve(null);
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(null), TAB_TIMEOUT);
    channel.addEventListener('message', function received({ data }) {
      if (!data?.token) return;
      clearTimeout(timer);
      channel.removeEventListener('message', received);
      resolve(data);
    });
    channel.postMessage('ask');
  });
}

/** Takes the code of a link from the address, which then no longer has it; null if there is none. */
export function takeCode() {
  const match = /^#login=(.+)$/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, '', location.pathname);
  return match[1];
}

async function exchange(code) {
  const response = await fetch('/console/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ code }),
    credentials: 'omit',
    cache: 'no-store',
  });
  if (response.status === 401) throw new Error('The link was used before, or is older than 15 minutes. Run “watchet console” for a new one.');
  if (!response.ok) throw new Error(`The login failed: HTTP ${response.status}`);
  return response.json();
}

/** Returns true if the user may use the API now. */
async function isAuthenticated() {
  try {
    await get('/api');
    return true;
  } catch (error) {
    if (error instanceof ApiError && (error.code === 401 || error.code === 403)) return error.code === 403 && stored() !== null;
    throw error;
  }
}

/** Logs in and returns the name of the user; shows a form if it needs a token. */
export async function logIn(root, problem = '') {
  const code = takeCode();
  if (code) {
    try {
      use(await exchange(code));
    } catch (error) {
      problem = error.message;
    }
  }
  const session = stored() ?? (await askOtherTabs());
  if (session) use(session);
  if (await isAuthenticated()) return stored()?.user ?? '';
  forget();
  return form(root, problem);
}

/** Deletes the token from this tab. */
export function forget() {
  setToken(null);
  sessionStorage.removeItem(STORAGE_KEY);
}

/** Ends the session on the server and in this tab. */
export async function logOut() {
  await request('/console/logout', { method: 'POST' }).catch(() => {});
  forget();
  location.hash = '';
  location.reload();
}

/** Returns true if this tab has a token. */
export function hasToken() {
  return stored() !== null;
}

function form(root, problem) {
  return new Promise((resolve) => {
    const message = h('p', { class: 'problem', role: 'alert' }, problem);
    const input = h('input', { type: 'password', name: 'token', autocomplete: 'off', 'aria-label': 'Bearer token', placeholder: 'bearer token' });
    const submit = async (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!token) return;
      const session = { token, user: '' };
      use(session);
      try {
        if (!(await isAuthenticated())) throw new Error('The server does not accept this token.');
        const review = await get('/apis/authentication.k8s.io/v1/selfsubjectreviews', { method: 'POST', body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' } }).catch(() => null);
        session.user = review?.status?.userInfo?.username ?? '';
        use(session);
        resolve(session.user);
      } catch (error) {
        forget();
        message.textContent = error.message;
      }
    };
    replace(root, h('form', { class: 'card login', onsubmit: submit },
      h('h1', null, 'Log in'),
      h('p', null, 'Open the link that ', h('code', null, 'watchet serve'), ' printed at its start, or run ', h('code', null, 'watchet console'), ' for a new one. Users without a kubeconfig paste a bearer token, for example of a service account:'),
      h('p', null, h('code', null, 'kubectl create token NAME')),
      input, h('button', { type: 'submit' }, 'Log in'), message));
    input.focus();
  });
}
