import type { Permission } from './gql/graphql';

const texts: Record<Permission, string> = {
  PROVIDERS_READ: 'see accounts, offers and bootstraps',
  PROVIDERS_MANAGE: 'change accounts and secrets, and run bootstraps',
  POOLS_READ: 'see pools and hosts',
  POOLS_MANAGE: 'change pools, and remove hosts',
  IAM_MANAGE: 'grant roles, and make tokens',
  AUDIT_READ: 'read the audit log',
};

export const permissions = Object.keys(texts) as Permission[];

/** What a permission lets somebody do, as the end of "may …". */
export function permissionText(permission: Permission): string {
  return texts[permission];
}
