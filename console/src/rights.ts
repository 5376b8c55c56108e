import { useQuery } from './query';
import { graphql } from './gql';
import type { Permission } from './gql/graphql';
import { useWorkplace } from './tenant';

const ObjectRights = graphql(`
  query ObjectRights($tenant: ID!, $object: ID!) {
    viewer {
      permissions(tenantId: $tenant, objectId: $object)
    }
  }
`);

/** Whether the caller may do it with one account or pool: undefined until it is known. */
export function useRight(permission: Permission, objectId?: string | null): boolean | undefined {
  const { tenant, permissions } = useWorkplace();
  const [{ data }] = useQuery({ query: ObjectRights, variables: { tenant, object: objectId ?? '' }, pause: !objectId });
  if (!objectId) return permissions.has(permission);
  return data?.viewer?.permissions.includes(permission);
}

/** As useRight, and false until it is known: for what is shown only to who may use it. */
export function useMay(permission: Permission, objectId?: string | null): boolean {
  return useRight(permission, objectId) ?? false;
}
