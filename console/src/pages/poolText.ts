import type { PoolClass } from '../gql/graphql';

const texts: Record<PoolClass, string> = {
  VPS_HOST: 'Virtual servers that are hosts',
  METAL_HOST: 'Dedicated servers that are hosts',
  VPS: 'Virtual servers',
  METAL: 'Dedicated servers',
  CONTAINER: 'Containers',
};

export function classText(poolClass: PoolClass): string {
  return texts[poolClass];
}

/** Whether bootstraps may put hosts into a pool of this class, when it runs the agent. */
export function ofHosts(poolClass: PoolClass): boolean {
  return poolClass === 'VPS_HOST' || poolClass === 'METAL_HOST';
}
