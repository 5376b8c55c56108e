// The session: one credential, kept in the tab's session storage and shared with the console's other open tabs.

const key = 'compute-token';
const channel = new BroadcastChannel('compute-session');
const listeners = new Set<() => void>();
let reason = '';

type Message = { kind: 'ask' } | { kind: 'token'; token: string } | { kind: 'end'; token: string; reason: string };

function changed() {
  listeners.forEach((tell) => tell());
}

function store(token: string | null, why: string) {
  if (token === null) sessionStorage.removeItem(key);
  else sessionStorage.setItem(key, token);
  reason = why;
  changed();
}

channel.onmessage = (event: MessageEvent<Message>) => {
  const message = event.data;
  const token = currentToken();
  if (message.kind === 'ask' && token !== null) channel.postMessage({ kind: 'token', token } satisfies Message);
  if (message.kind === 'token' && token === null) store(message.token, '');
  if (message.kind === 'end' && token === message.token) store(null, message.reason);
};

export function currentToken(): string | null {
  return sessionStorage.getItem(key);
}

/** Why the last session ended; empty when the person ended it, or there was none. */
export function endReason(): string {
  return reason;
}

export function beginSession(token: string) {
  store(token, '');
  channel.postMessage({ kind: 'token', token } satisfies Message);
}

/** Ends the session in every tab that has the same credential. */
export function endSession(why = '') {
  const token = currentToken();
  if (token === null) return;
  channel.postMessage({ kind: 'end', token, reason: why } satisfies Message);
  store(null, why);
}

/** Ends the session of this credential, unless another has begun meanwhile. */
export function credentialRefused(token: string) {
  if (token === currentToken()) endSession('Your session has ended: the server does not take its credential any more.');
}

export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Asks the other tabs for their session, and waits a moment for the answer. */
export async function adoptSession(): Promise<void> {
  if (currentToken() !== null) return;
  channel.postMessage({ kind: 'ask' } satisfies Message);
  await new Promise<void>((resolve) => {
    const stop = onSessionChange(resolve);
    setTimeout(() => {
      stop();
      resolve();
    }, 120);
  });
}
