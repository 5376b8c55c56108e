// The session: one credential, kept in the tab's session storage and shared with the console's other open tabs.

const key = 'compute-token';
const whose = 'compute-subject';
const channel = new BroadcastChannel('compute-session');
const listeners = new Set<() => void>();
let reason = '';

export interface Session {
  token: string;
  subject: string;
}

type Message = { kind: 'ask' } | ({ kind: 'token' } & Session) | { kind: 'end'; token: string; reason: string };

function changed() {
  listeners.forEach((tell) => tell());
}

function begin({ token, subject }: Session) {
  sessionStorage.setItem(key, token);
  sessionStorage.setItem(whose, subject);
  reason = '';
  changed();
}

function end(why: string) {
  sessionStorage.removeItem(key);
  reason = why;
  changed();
}

channel.onmessage = (event: MessageEvent<Message>) => {
  const message = event.data;
  const token = currentToken();
  if (message.kind === 'ask' && token !== null) channel.postMessage({ kind: 'token', token, subject: currentSubject() } satisfies Message);
  if (message.kind === 'token' && token === null) begin(message);
  if (message.kind === 'end' && token === message.token) end(message.reason);
};

export function currentToken(): string | null {
  return sessionStorage.getItem(key);
}

/** Who is signed in, or was in this tab until the session ended. */
export function currentSubject(): string {
  return sessionStorage.getItem(whose) ?? '';
}

/** Why the last session ended; empty when the person ended it, or there was none. */
export function endReason(): string {
  return reason;
}

export function beginSession(session: Session) {
  begin(session);
  channel.postMessage({ kind: 'token', ...session } satisfies Message);
}

/** Ends the session in every tab that has the same credential. */
export function endSession(why = '') {
  const token = currentToken();
  if (token === null) return;
  channel.postMessage({ kind: 'end', token, reason: why } satisfies Message);
  end(why);
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
