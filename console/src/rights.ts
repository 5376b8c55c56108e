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

/** What the caller may do with one account or pool: false until it is known. */
export function useMay(permission: Permission, objectId?: string | null): boolean {
  const { tenant, permissions } = useWorkplace();
  const [{ data }] = useQuery({ query: ObjectRights, variables: { tenant, object: objectId ?? '' }, pause: !objectId });
  if (!objectId) return permissions.has(permission);
  return data?.viewer?.permissions.includes(permission) ?? false;
}
