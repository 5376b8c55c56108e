import { useEffect } from 'react';

/** How often an idle page asks whether its credential still counts. */
const every = 15_000;

/** Asks the server again and again while the page is open, and once when the token ends: the session ends with its credential. */
export function useHeartbeat(token: string, again: (options: { requestPolicy: 'network-only' }) => void) {
  useEffect(() => {
    const look = () => again({ requestPolicy: 'network-only' });
    const timer = setInterval(look, every);
    const end = endOf(token);
    const ending = end === null ? undefined : setTimeout(look, Math.min(Math.max(0, end - Date.now()) + 1000, 2 ** 31 - 1));
    return () => {
      clearInterval(timer);
      clearTimeout(ending);
    };
  }, [again, token]);
}

/** When a JSON Web Token ends; null for other credentials, whose end only the server knows. */
function endOf(token: string): number | null {
  const [, body, signature] = token.split('.');
  if (!body || !signature) return null;
  try {
    const claims = JSON.parse(atob(body.replaceAll('-', '+').replaceAll('_', '/'))) as { exp?: unknown };
    return typeof claims.exp === 'number' ? claims.exp * 1000 : null;
  } catch {
    return null;
  }
}
