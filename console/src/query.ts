import { stringifyVariables, type CombinedError } from '@urql/core';
import { useEffect, useState } from 'react';
import { useQuery as useOnce, type AnyVariables, type UseQueryArgs, type UseQueryResponse } from 'urql';

/** What says nothing about what was asked for: another try may well be answered. */
const passes = new Set<unknown>(['UNAVAILABLE', 'RATE_LIMITED', 'INTERNAL', 'UNAUTHENTICATED']);

function isLost(error: CombinedError | undefined): boolean {
  if (error === undefined) return false;
  return (
    error.networkError !== undefined || (error.graphQLErrors.length > 0 && error.graphQLErrors.every((e) => passes.has(e.extensions.code)))
  );
}

function isEmpty(data: unknown): boolean {
  return data === undefined || data === null || Object.values(data).every((value) => value === null);
}

/** How long after a request that the network lost it is sent again. */
const againAfter = 4000;

/**
 * As useQuery, for a list that is walked or filtered: what was shown stays until the next page is there. Only where no more than the
 * page or the filter changes, as what is shown is then of other variables.
 */
export function useListQuery<Data, Variables extends AnyVariables>(args: UseQueryArgs<Variables, Data>): UseQueryResponse<Data, Variables> {
  const [result, execute] = useOnce<Data, Variables>(args);
  const [kept, setKept] = useState<{ of: string; data: Data } | null>(null);
  const of = stringifyVariables(result.operation?.variables ?? {});
  const lost = isLost(result.error) && isEmpty(result.data);
  if (!lost && result.data !== undefined && (kept?.data !== result.data || kept.of !== of)) setKept({ of, data: result.data });
  const unreached = result.error?.networkError;
  useEffect(() => {
    if (!unreached) return;
    const timer = setTimeout(() => execute({ requestPolicy: 'network-only' }), againAfter);
    return () => clearTimeout(timer);
  }, [unreached, execute]);
  const unanswered = lost || (result.data === undefined && result.error === undefined); // the latter while it is asked again
  return [unanswered && kept?.of === of ? { ...result, data: kept.data } : result, execute];
}

/**
 * As urql's, but what was read stays while the server cannot be reached, and until it answers again: a page does not go blank with the
 * network. What was read for other variables does not stay: it is of another tenant, pool or account than the one asked for now.
 */
export function useQuery<Data, Variables extends AnyVariables>(args: UseQueryArgs<Variables, Data>): UseQueryResponse<Data, Variables> {
  const [result, execute] = useListQuery(args);
  const answered = result.operation && stringifyVariables(result.operation.variables) === stringifyVariables(args.variables ?? {});
  return [answered ? result : { ...result, data: undefined, error: undefined }, execute];
}
