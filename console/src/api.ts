import { cacheExchange, Client, fetchExchange, makeOperation, mapExchange, type CombinedError, type Exchange } from '@urql/core';
import { print } from 'graphql';
import { createClient, type Client as SocketClient } from 'graphql-ws';
import { pipe, tap } from 'wonka';
import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { credentialRefused } from './session';
import { problemOfError, type Problem } from './problem';

const path = '/graphql';
const expired = 4403;

function isRefused(error: CombinedError): boolean {
  return error.graphQLErrors.some((e) => e.extensions.code === 'UNAUTHENTICATED');
}

/**
 * Asks again for what was on its way while a mutation was answered: it may be of before, and the client does not ask twice at a time, so
 * that what the mutation touched would stay as it was.
 */
const askAfresh: Exchange = ({ client, forward }) => {
  let mutations = 0;
  const before = new Map<number, number>(); // how many had been answered when a query was sent
  return (operations) =>
    pipe(
      operations,
      tap(({ kind, key }) => {
        if (kind === 'query') before.set(key, mutations);
      }),
      forward,
      tap(({ operation }) => {
        if (operation.kind === 'mutation') mutations++;
        if (operation.kind !== 'query' || before.get(operation.key) === mutations) return;
        client.reexecuteOperation(makeOperation('query', operation, { ...operation.context, requestPolicy: 'network-only' }));
      }),
    );
};

/** The client of one session. A new session gets a new one, so that nothing of the old is in its cache. */
export function createApi(token: string): Client {
  return new Client({
    url: path,
    preferGetMethod: false,
    requestPolicy: 'cache-and-network',
    fetchOptions: { headers: { Authorization: `Bearer ${token}`, Accept: 'application/graphql-response+json' } },
    exchanges: [
      mapExchange({
        onError(error) {
          if (isRefused(error)) credentialRefused(token);
        },
      }),
      cacheExchange,
      askAfresh,
      fetchExchange,
    ],
  });
}

export function createSocket(token: string): SocketClient {
  return createClient({
    url: location.origin.replace(/^http/, 'ws') + path,
    connectionParams: { authorization: `Bearer ${token}` },
    retryAttempts: 0, // follow() goes on by itself, from its cursor
    keepAlive: 10_000,
    on: {
      closed(event) {
        if (event instanceof CloseEvent && event.code === expired) credentialRefused(token);
      },
    },
  });
}

export type Connection = 'connecting' | 'live' | 'lost';

interface Following<Data, Variables> {
  socket: SocketClient;
  document: TypedDocumentNode<Data, Variables>;
  /** The variables of the stream when it goes on behind a cursor. */
  variables: (after: string | null) => Variables;
  cursorOf: (data: Data) => string;
  onData: (data: Data) => void;
  onConnection: (state: Connection) => void;
  onProblem: (problem: Problem) => void;
}

/** What ends a stream that may go on from its cursor. */
const passes = new Set(['RATE_LIMITED', 'UNAVAILABLE']);

function isErrorList(value: unknown): value is { message: string; extensions?: Record<string, unknown> }[] {
  return Array.isArray(value) && value.length > 0;
}

/** Follows a stream to its end, over lost connections: each goes on behind the last message that was seen. */
export function follow<Data, Variables>(f: Following<Data, Variables>): () => void {
  let cursor: string | null = null;
  let attempt = 0;
  let stopped = false;
  let unsubscribe = () => {};
  let timer: ReturnType<typeof setTimeout> | undefined;

  const again = () => {
    if (stopped) return;
    f.onConnection('lost');
    clearTimeout(timer);
    timer = setTimeout(start, Math.min(500 * 2 ** attempt++, 8000));
  };
  const atOnce = () => {
    if (timer === undefined) return;
    attempt = 0;
    clearTimeout(timer);
    start();
  };
  const start = () => {
    timer = undefined;
    unsubscribe = f.socket.subscribe<Data>(
      { query: print(f.document), variables: f.variables(cursor) as Record<string, unknown> },
      {
        next(result) {
          const [error] = result.errors ?? [];
          if (error) f.onProblem(problemOfError(error));
          if (error || !result.data) return;
          attempt = 0;
          cursor = f.cursorOf(result.data);
          f.onConnection('live');
          f.onData(result.data);
        },
        error(cause) {
          const problem = isErrorList(cause) && cause[0] ? problemOfError(cause[0]) : null;
          if (problem === null || passes.has(problem.code)) again();
          else f.onProblem(problem);
        },
        complete() {
          stopped = true;
        },
      },
    );
  };
  window.addEventListener('online', atOnce);
  f.onConnection('connecting');
  start();
  return () => {
    stopped = true;
    clearTimeout(timer);
    window.removeEventListener('online', atOnce);
    unsubscribe();
  };
}
