import { useEffect } from 'react';

/** Asks again every so often, for what moves without an event: as long as somebody can see the page. Never where there is no time. */
export function useLook(again: (options: { requestPolicy: 'network-only' }) => void, every: number | null) {
  useEffect(() => {
    if (every === null) return;
    const look = () => {
      if (document.visibilityState === 'visible') again({ requestPolicy: 'network-only' });
    };
    const timer = setInterval(look, every);
    document.addEventListener('visibilitychange', look);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [again, every]);
}
