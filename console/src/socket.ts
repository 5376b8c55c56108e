import type { Client } from 'graphql-ws';
import { createContext, use } from 'react';

export const SocketContext = createContext<Client | null>(null);

export function useSocket(): Client {
  const socket = use(SocketContext);
  if (!socket) throw new Error('outside of a session');
  return socket;
}
