const place = (tenant: string, what: (string | null)[]) => `compute-key ${JSON.stringify([tenant, ...what])}`;

/** A key that makes a repeat of a call find the first one's result. Also without TLS, where crypto.randomUUID is missing. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('')}`;
}

/**
 * The key of what is asked for, the same until forgetKey, over reloads too: who gets no answer, reloads and asks again finds what the
 * first call made. An answer that refuses is no reason to forget it, as a call before it may have taken effect.
 */
export function keyOf(tenant: string, ...what: (string | null)[]): string {
  const at = place(tenant, what);
  const key = sessionStorage.getItem(at) ?? newKey();
  sessionStorage.setItem(at, key);
  return key;
}

/** After the call took effect and its answer came: the next one asks for another. */
export function forgetKey(tenant: string, ...what: (string | null)[]) {
  sessionStorage.removeItem(place(tenant, what));
}
