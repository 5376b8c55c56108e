import { useState } from 'react';
import { useQuery as useOnce, type AnyVariables, type UseQueryArgs, type UseQueryResponse } from 'urql';

/** As urql's, but what was read stays while the server cannot be reached: a page does not go blank with the network. */
export function useQuery<Data, Variables extends AnyVariables>(args: UseQueryArgs<Variables, Data>): UseQueryResponse<Data, Variables> {
  const [result, execute] = useOnce<Data, Variables>(args);
  const asked = JSON.stringify(result.operation?.variables ?? null);
  const [kept, setKept] = useState<{ asked: string; data: Data } | null>(null);
  if (result.data !== undefined && (kept?.data !== result.data || kept.asked !== asked)) setKept({ asked, data: result.data });
  const lost = result.data === undefined && result.error?.networkError !== undefined && kept?.asked === asked;
  return [lost ? { ...result, data: kept.data } : result, execute];
}
