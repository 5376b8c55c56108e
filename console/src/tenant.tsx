import { createContext, use } from 'react';
import type { Permission } from './gql/graphql';

export interface Workplace {
  tenant: string;
  /** What the caller may do in the whole tenant. */
  permissions: ReadonlySet<Permission>;
}

export const WorkplaceContext = createContext<Workplace | null>(null);

/** The tenant that the page is about, and the caller's rights in it. */
export function useWorkplace(): Workplace {
  const workplace = use(WorkplaceContext);
  if (!workplace) throw new Error('outside of a tenant');
  return workplace;
}

export function useTenant(): string {
  return useWorkplace().tenant;
}

export function pathIn(tenant: string, path: string): string {
  return `/t/${encodeURIComponent(tenant)}${path}`;
}

/** A path of the present tenant. */
export function usePath(): (path: string) => string {
  const tenant = useTenant();
  return (path) => pathIn(tenant, path);
}
