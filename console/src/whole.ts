import { stringifyVariables, type CombinedError } from '@urql/core';
import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { useCallback, useEffect, useState } from 'react';
import { useClient, type AnyVariables } from 'urql';

interface Connection<Node> {
  nodes: Node[];
  pageInfo: { hasNextPage: boolean; endCursor?: string | null };
}

interface Whole<Node> {
  nodes: Node[] | undefined;
  error: CombinedError | undefined;
  again: () => void;
}

/**
 * A list from its first page to its last, for what has to know all of it: a choice, a count, a search. The query takes the cursor as
 * $after; `of` finds the list in an answer, and is the same function at each call.
 */
export function useWhole<Data, Variables extends AnyVariables & { after?: string | null }, Node>(
  query: TypedDocumentNode<Data, Variables>,
  variables: Omit<Variables, 'after'>,
  of: (data: Data) => Connection<Node> | null | undefined,
): Whole<Node> {
  const client = useClient();
  const asked = stringifyVariables(variables);
  const [round, setRound] = useState(0);
  const [answer, setAnswer] = useState<{ to: string; nodes?: Node[]; error?: CombinedError }>({ to: '' });

  useEffect(() => {
    let stopped = false;
    const read = async () => {
      const nodes: Node[] = [];
      let after: string | null | undefined = null;
      do {
        const page = { ...(JSON.parse(asked) as object), after } as Variables;
        const { data, error } = await client.query(query, page, { requestPolicy: 'network-only' }).toPromise();
        const list: Connection<Node> | null | undefined = data && of(data);
        if (stopped) return;
        if (!list) {
          setAnswer({ to: asked, error });
          return;
        }
        nodes.push(...list.nodes);
        after = list.pageInfo.hasNextPage ? list.pageInfo.endCursor : null;
      } while (after);
      setAnswer({ to: asked, nodes });
    };
    void read();
    return () => {
      stopped = true;
    };
  }, [client, query, asked, of, round]);

  const again = useCallback(() => setRound((old) => old + 1), []);
  const present = answer.to === asked;
  return { nodes: present ? answer.nodes : undefined, error: present ? answer.error : undefined, again };
}
