/* eslint-disable */
import * as types from './graphql';
import type { TypedDocumentNode as DocumentNode } from '@graphql-typed-document-node/core';

/**
 * Map of all GraphQL operations in the project.
 *
 * This map has several performance disadvantages:
 * 1. It is not tree-shakeable, so it will include all operations in the project.
 * 2. It is not minifiable, so the string of a GraphQL query will be multiple times inside the bundle.
 * 3. It does not support dead code elimination, so it will add unused operations.
 *
 * Therefore it is highly recommended to use the babel or swc plugin for production.
 * Learn more about it here: https://the-guild.dev/graphql/codegen/plugins/presets/preset-client#reducing-bundle-size
 */
type Documents = {
    "\n  query ShellViewer($tenant: ID!) {\n    viewer {\n      subject\n      tenants\n      permissions(tenantId: $tenant)\n    }\n  }\n": typeof types.ShellViewerDocument,
    "\n  query Offers($tenant: ID!, $account: ID!, $query: OfferQuery) {\n    offers(tenantId: $tenant, accountId: $account, query: $query) {\n      id\n      kind\n      region\n      name\n      arch\n      vcpu\n      memoryGiB\n      disks {\n        sizeGB\n        count\n        media\n      }\n      gpu {\n        model\n        count\n        memoryGiB\n      }\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      availability\n      observedAt\n    }\n  }\n": typeof types.OffersDocument,
    "\n  query RoleBindings($tenant: ID!, $after: String) {\n    roleBindings(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        subject\n        role\n        object\n        effect\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.RoleBindingsDocument,
    "\n  query Roles {\n    roles {\n      name\n      description\n      permissions\n      builtIn\n    }\n  }\n": typeof types.RolesDocument,
    "\n  query ApiTokens($tenant: ID!, $after: String) {\n    apiTokens(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        subject\n        description\n        createdBy\n        createdAt\n        expiresAt\n        lastUsedAt\n        revokedAt\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.ApiTokensDocument,
    "\n  mutation GrantRole($input: GrantRoleInput!) {\n    grantRole(input: $input) {\n      roleBinding {\n        subject\n      }\n    }\n  }\n": typeof types.GrantRoleDocument,
    "\n  mutation RevokeRole($input: RevokeRoleInput!) {\n    revokeRole(input: $input) {\n      revoked\n    }\n  }\n": typeof types.RevokeRoleDocument,
    "\n  mutation CreateToken($input: CreateApiTokenInput!) {\n    createApiToken(input: $input) {\n      token\n      apiToken {\n        id\n        subject\n      }\n    }\n  }\n": typeof types.CreateTokenDocument,
    "\n  mutation RevokeToken($input: RevokeApiTokenInput!) {\n    revokeApiToken(input: $input) {\n      apiToken {\n        id\n        revokedAt\n      }\n    }\n  }\n": typeof types.RevokeTokenDocument,
    "\n  mutation DefineRole($input: DefineRoleInput!) {\n    defineRole(input: $input) {\n      role {\n        name\n      }\n    }\n  }\n": typeof types.DefineRoleDocument,
    "\n  mutation DeleteRole($input: DeleteRoleInput!) {\n    deleteRole(input: $input) {\n      deleted\n    }\n  }\n": typeof types.DeleteRoleDocument,
    "\n  query FleetRights {\n    viewer {\n      permissions\n    }\n  }\n": typeof types.FleetRightsDocument,
    "\n  query Account($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      provider {\n        name\n        displayName\n        capabilities {\n          offers\n          machines\n          bootstrap\n        }\n      }\n      config\n      version\n      createdAt\n      updatedAt\n      check {\n        ok\n        reason\n        message\n        at\n      }\n      bootstraps(first: 10) {\n        nodes {\n          id\n          status\n          waitReason\n          machineId\n          createdAt\n        }\n        pageInfo {\n          hasNextPage\n        }\n      }\n    }\n  }\n": typeof types.AccountDocument,
    "\n  query Machines($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      machines {\n        id\n        name\n        kind\n        region\n        status\n        addresses\n        inUse\n      }\n    }\n  }\n": typeof types.MachinesDocument,
    "\n  query Providers {\n    providers {\n      name\n      displayName\n      configSchema\n      secretFields\n    }\n  }\n": typeof types.ProvidersDocument,
    "\n  query AccountToEdit($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      version\n      config\n      provider {\n        name\n      }\n    }\n  }\n": typeof types.AccountToEditDocument,
    "\n  mutation CreateAccount($input: CreateProviderAccountInput!) {\n    createProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n": typeof types.CreateAccountDocument,
    "\n  mutation CheckConfig($input: CheckProviderConfigInput!) {\n    checkProviderConfig(input: $input) {\n      check {\n        ok\n        message\n      }\n    }\n  }\n": typeof types.CheckConfigDocument,
    "\n  mutation UpdateAccount($input: UpdateProviderAccountInput!) {\n    updateProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n": typeof types.UpdateAccountDocument,
    "\n  query Accounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          displayName\n        }\n        check {\n          ok\n          reason\n          at\n        }\n        updatedAt\n        bootstraps(first: 20, statuses: [CLAIMING, IDENTIFYING, PREPARING, INSTALLING, INSTALLED]) {\n          nodes {\n            id\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.AccountsDocument,
    "\n  query PoolAccounts($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        account {\n          id\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.PoolAccountsDocument,
    "\n  query AuditEvents($tenant: ID!, $filter: AuditEventFilter, $after: String) {\n    auditEvents(tenantId: $tenant, filter: $filter, first: 50, after: $after) {\n      nodes {\n        id\n        at\n        actor\n        action\n        object\n        outcome\n        requestId\n        details\n        sequence\n        hash\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.AuditEventsDocument,
    "\n  query Bootstrap($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      accountId\n      machineId\n      offerId\n      status\n      step\n      waitReason\n      attempt\n      cleanup\n      hostId\n      createdAt\n      deadlineAt\n      retryOf\n      failure {\n        reason\n        message\n        logTail\n      }\n      account {\n        id\n        name\n      }\n      pool {\n        id\n        name\n      }\n      history {\n        from\n        to\n        at\n        until\n        reason\n      }\n    }\n  }\n": typeof types.BootstrapDocument,
    "\n  subscription BootstrapChanged($tenant: ID!, $bootstrap: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $bootstrap, after: $after) {\n      cursor\n      to\n    }\n  }\n": typeof types.BootstrapChangedDocument,
    "\n  mutation CancelBootstrap($input: CancelBootstrapInput!) {\n    cancelBootstrap(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n        cleanup\n      }\n    }\n  }\n": typeof types.CancelBootstrapDocument,
    "\n  mutation RetryBootstrap($input: RetryBootstrapInput!) {\n    retryBootstrap(input: $input) {\n      bootstrap {\n        id\n      }\n    }\n  }\n": typeof types.RetryBootstrapDocument,
    "\n  query Claim($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      claim {\n        operationId\n        offerId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        intendedAt\n        attemptedAt\n        orderRef\n        lastError\n        candidates {\n          id\n          name\n          status\n          region\n        }\n      }\n    }\n  }\n": typeof types.ClaimDocument,
    "\n  mutation ResolveClaim($input: ResolveClaimInput!) {\n    resolveClaim(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n      }\n    }\n  }\n": typeof types.ResolveClaimDocument,
    "\n  query Bootstraps(\n    $tenant: ID!\n    $account: ID\n    $pool: ID\n    $statuses: [BootstrapStatus!]\n    $waitReasons: [String!]\n    $cleanups: [CleanupStatus!]\n    $after: String\n  ) {\n    bootstraps(\n      tenantId: $tenant\n      accountId: $account\n      poolId: $pool\n      statuses: $statuses\n      waitReasons: $waitReasons\n      cleanups: $cleanups\n      first: 25\n      after: $after\n    ) {\n      nodes {\n        id\n        status\n        step\n        waitReason\n        machineId\n        createdAt\n        failure {\n          reason\n        }\n        account {\n          id\n          name\n        }\n        pool {\n          id\n          name\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.BootstrapsDocument,
    "\n  subscription BootstrapsChanged($tenant: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, after: $after) {\n      cursor\n    }\n  }\n": typeof types.BootstrapsChangedDocument,
    "\n  query WaitingForPeople($tenant: ID!) {\n    uncertain: bootstraps(tenantId: $tenant, waitReasons: [\"CLAIM_UNCERTAIN\"], first: 1) {\n      nodes {\n        id\n      }\n    }\n    blocked: bootstraps(tenantId: $tenant, cleanups: [BLOCKED], first: 1) {\n      nodes {\n        id\n      }\n    }\n  }\n": typeof types.WaitingForPeopleDocument,
    "\n  query StartContext($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n    }\n  }\n": typeof types.StartContextDocument,
    "\n  query PoolsToStart($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.PoolsToStartDocument,
    "\n  query Plan($tenant: ID!, $account: ID!, $pool: ID!, $machine: ID, $offer: ID) {\n    planBootstrap(tenantId: $tenant, accountId: $account, poolId: $pool, machineId: $machine, offerId: $offer) {\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      wipes\n      expectedMinutes\n      ready\n      preconditions {\n        name\n        ok\n        message\n        code\n      }\n    }\n  }\n": typeof types.PlanDocument,
    "\n  mutation StartBootstrap($input: BootstrapMachineInput!) {\n    bootstrapMachine(input: $input) {\n      replayed\n      bootstrap {\n        id\n        status\n      }\n    }\n  }\n": typeof types.StartBootstrapDocument,
    "\n  query OfferAccounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          capabilities {\n            offers\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.OfferAccountsDocument,
    "\n  query Orphans($tenant: ID!, $after: String) {\n    orphans(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        accountId\n        kind\n        machineId\n        operationId\n        bootstrapId\n        hostId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        firstSeenAt\n        lastSeenAt\n        resolvedAt\n        release {\n          requestedAt\n          requestedBy\n          attempts\n          lastError\n          nextTryAt\n          droppedAt\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.OrphansDocument,
    "\n  mutation ReleaseMachine($input: ReleaseMachineInput!) {\n    releaseMachine(input: $input) {\n      orphan {\n        id\n        resolvedAt\n        release {\n          requestedAt\n        }\n      }\n    }\n  }\n": typeof types.ReleaseMachineDocument,
    "\n  query Pool($tenant: ID!, $pool: ID!, $removed: Boolean!, $after: String) {\n    pool(tenantId: $tenant, poolId: $pool) {\n      id\n      name\n      class\n      agent\n      archivedAt\n      createdAt\n      account {\n        id\n        name\n      }\n      hosts(includeRemoved: $removed, first: 25, after: $after) {\n        nodes {\n          id\n          machineId\n          bootstrapId\n          joinedAt\n          lastSeenAt\n          agentVersion\n          certificateNotAfter\n          removedAt\n        }\n        pageInfo {\n          hasNextPage\n          endCursor\n        }\n      }\n    }\n  }\n": typeof types.PoolDocument,
    "\n  mutation ArchivePool($input: ArchivePoolInput!) {\n    archivePool(input: $input) {\n      pool {\n        id\n        archivedAt\n      }\n    }\n  }\n": typeof types.ArchivePoolDocument,
    "\n  mutation RemoveHost($input: RemoveHostInput!) {\n    removeHost(input: $input) {\n      host {\n        id\n        removedAt\n      }\n    }\n  }\n": typeof types.RemoveHostDocument,
    "\n  query Pools($tenant: ID!, $archived: Boolean!, $after: String) {\n    pools(tenantId: $tenant, includeArchived: $archived, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n        archivedAt\n        createdAt\n        account {\n          id\n          name\n        }\n        hosts(first: 20) {\n          nodes {\n            id\n          }\n          pageInfo {\n            hasNextPage\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.PoolsDocument,
    "\n  mutation CreatePool($input: CreatePoolInput!) {\n    createPool(input: $input) {\n      pool {\n        id\n        name\n      }\n    }\n  }\n": typeof types.CreatePoolDocument,
    "\n  query AccountNames($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": typeof types.AccountNamesDocument,
    "\n  query Secrets($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n      createdAt\n      updatedAt\n    }\n  }\n": typeof types.SecretsDocument,
    "\n  mutation DeleteSecret($input: DeleteSecretInput!) {\n    deleteSecret(input: $input) {\n      deleted\n    }\n  }\n": typeof types.DeleteSecretDocument,
    "\n  query Settings {\n    viewer {\n      subject\n      groups\n      tenants\n    }\n    server {\n      version\n    }\n    providers {\n      name\n      displayName\n      capabilities {\n        offers\n        machines\n        order\n        bootstrap\n        release\n        prices\n        liveStock\n      }\n    }\n  }\n": typeof types.SettingsDocument,
    "\n  query ViewerTenants {\n    viewer {\n      subject\n      tenants\n    }\n  }\n": typeof types.ViewerTenantsDocument,
    "\n  mutation CheckAccount($input: CheckProviderAccountInput!) {\n    checkProviderAccount(input: $input) {\n      providerAccount {\n        id\n        check {\n          ok\n          reason\n          message\n          at\n        }\n      }\n    }\n  }\n": typeof types.CheckAccountDocument,
    "\n  mutation DeleteAccount($input: DeleteProviderAccountInput!) {\n    deleteProviderAccount(input: $input) {\n      deletedId\n    }\n  }\n": typeof types.DeleteAccountDocument,
    "\n  query ObjectRights($tenant: ID!, $object: ID!) {\n    viewer {\n      permissions(tenantId: $tenant, objectId: $object)\n    }\n  }\n": typeof types.ObjectRightsDocument,
    "\n  query WhoAmI {\n    viewer {\n      subject\n    }\n  }\n": typeof types.WhoAmIDocument,
    "\n  query SecretNames($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n    }\n  }\n": typeof types.SecretNamesDocument,
    "\n  mutation PutSecret($input: PutSecretInput!) {\n    putSecret(input: $input) {\n      secret {\n        name\n        createdAt\n        updatedAt\n      }\n    }\n  }\n": typeof types.PutSecretDocument,
};
const documents: Documents = {
    "\n  query ShellViewer($tenant: ID!) {\n    viewer {\n      subject\n      tenants\n      permissions(tenantId: $tenant)\n    }\n  }\n": types.ShellViewerDocument,
    "\n  query Offers($tenant: ID!, $account: ID!, $query: OfferQuery) {\n    offers(tenantId: $tenant, accountId: $account, query: $query) {\n      id\n      kind\n      region\n      name\n      arch\n      vcpu\n      memoryGiB\n      disks {\n        sizeGB\n        count\n        media\n      }\n      gpu {\n        model\n        count\n        memoryGiB\n      }\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      availability\n      observedAt\n    }\n  }\n": types.OffersDocument,
    "\n  query RoleBindings($tenant: ID!, $after: String) {\n    roleBindings(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        subject\n        role\n        object\n        effect\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.RoleBindingsDocument,
    "\n  query Roles {\n    roles {\n      name\n      description\n      permissions\n      builtIn\n    }\n  }\n": types.RolesDocument,
    "\n  query ApiTokens($tenant: ID!, $after: String) {\n    apiTokens(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        subject\n        description\n        createdBy\n        createdAt\n        expiresAt\n        lastUsedAt\n        revokedAt\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.ApiTokensDocument,
    "\n  mutation GrantRole($input: GrantRoleInput!) {\n    grantRole(input: $input) {\n      roleBinding {\n        subject\n      }\n    }\n  }\n": types.GrantRoleDocument,
    "\n  mutation RevokeRole($input: RevokeRoleInput!) {\n    revokeRole(input: $input) {\n      revoked\n    }\n  }\n": types.RevokeRoleDocument,
    "\n  mutation CreateToken($input: CreateApiTokenInput!) {\n    createApiToken(input: $input) {\n      token\n      apiToken {\n        id\n        subject\n      }\n    }\n  }\n": types.CreateTokenDocument,
    "\n  mutation RevokeToken($input: RevokeApiTokenInput!) {\n    revokeApiToken(input: $input) {\n      apiToken {\n        id\n        revokedAt\n      }\n    }\n  }\n": types.RevokeTokenDocument,
    "\n  mutation DefineRole($input: DefineRoleInput!) {\n    defineRole(input: $input) {\n      role {\n        name\n      }\n    }\n  }\n": types.DefineRoleDocument,
    "\n  mutation DeleteRole($input: DeleteRoleInput!) {\n    deleteRole(input: $input) {\n      deleted\n    }\n  }\n": types.DeleteRoleDocument,
    "\n  query FleetRights {\n    viewer {\n      permissions\n    }\n  }\n": types.FleetRightsDocument,
    "\n  query Account($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      provider {\n        name\n        displayName\n        capabilities {\n          offers\n          machines\n          bootstrap\n        }\n      }\n      config\n      version\n      createdAt\n      updatedAt\n      check {\n        ok\n        reason\n        message\n        at\n      }\n      bootstraps(first: 10) {\n        nodes {\n          id\n          status\n          waitReason\n          machineId\n          createdAt\n        }\n        pageInfo {\n          hasNextPage\n        }\n      }\n    }\n  }\n": types.AccountDocument,
    "\n  query Machines($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      machines {\n        id\n        name\n        kind\n        region\n        status\n        addresses\n        inUse\n      }\n    }\n  }\n": types.MachinesDocument,
    "\n  query Providers {\n    providers {\n      name\n      displayName\n      configSchema\n      secretFields\n    }\n  }\n": types.ProvidersDocument,
    "\n  query AccountToEdit($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      version\n      config\n      provider {\n        name\n      }\n    }\n  }\n": types.AccountToEditDocument,
    "\n  mutation CreateAccount($input: CreateProviderAccountInput!) {\n    createProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n": types.CreateAccountDocument,
    "\n  mutation CheckConfig($input: CheckProviderConfigInput!) {\n    checkProviderConfig(input: $input) {\n      check {\n        ok\n        message\n      }\n    }\n  }\n": types.CheckConfigDocument,
    "\n  mutation UpdateAccount($input: UpdateProviderAccountInput!) {\n    updateProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n": types.UpdateAccountDocument,
    "\n  query Accounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          displayName\n        }\n        check {\n          ok\n          reason\n          at\n        }\n        updatedAt\n        bootstraps(first: 20, statuses: [CLAIMING, IDENTIFYING, PREPARING, INSTALLING, INSTALLED]) {\n          nodes {\n            id\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.AccountsDocument,
    "\n  query PoolAccounts($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        account {\n          id\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.PoolAccountsDocument,
    "\n  query AuditEvents($tenant: ID!, $filter: AuditEventFilter, $after: String) {\n    auditEvents(tenantId: $tenant, filter: $filter, first: 50, after: $after) {\n      nodes {\n        id\n        at\n        actor\n        action\n        object\n        outcome\n        requestId\n        details\n        sequence\n        hash\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.AuditEventsDocument,
    "\n  query Bootstrap($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      accountId\n      machineId\n      offerId\n      status\n      step\n      waitReason\n      attempt\n      cleanup\n      hostId\n      createdAt\n      deadlineAt\n      retryOf\n      failure {\n        reason\n        message\n        logTail\n      }\n      account {\n        id\n        name\n      }\n      pool {\n        id\n        name\n      }\n      history {\n        from\n        to\n        at\n        until\n        reason\n      }\n    }\n  }\n": types.BootstrapDocument,
    "\n  subscription BootstrapChanged($tenant: ID!, $bootstrap: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $bootstrap, after: $after) {\n      cursor\n      to\n    }\n  }\n": types.BootstrapChangedDocument,
    "\n  mutation CancelBootstrap($input: CancelBootstrapInput!) {\n    cancelBootstrap(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n        cleanup\n      }\n    }\n  }\n": types.CancelBootstrapDocument,
    "\n  mutation RetryBootstrap($input: RetryBootstrapInput!) {\n    retryBootstrap(input: $input) {\n      bootstrap {\n        id\n      }\n    }\n  }\n": types.RetryBootstrapDocument,
    "\n  query Claim($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      claim {\n        operationId\n        offerId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        intendedAt\n        attemptedAt\n        orderRef\n        lastError\n        candidates {\n          id\n          name\n          status\n          region\n        }\n      }\n    }\n  }\n": types.ClaimDocument,
    "\n  mutation ResolveClaim($input: ResolveClaimInput!) {\n    resolveClaim(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n      }\n    }\n  }\n": types.ResolveClaimDocument,
    "\n  query Bootstraps(\n    $tenant: ID!\n    $account: ID\n    $pool: ID\n    $statuses: [BootstrapStatus!]\n    $waitReasons: [String!]\n    $cleanups: [CleanupStatus!]\n    $after: String\n  ) {\n    bootstraps(\n      tenantId: $tenant\n      accountId: $account\n      poolId: $pool\n      statuses: $statuses\n      waitReasons: $waitReasons\n      cleanups: $cleanups\n      first: 25\n      after: $after\n    ) {\n      nodes {\n        id\n        status\n        step\n        waitReason\n        machineId\n        createdAt\n        failure {\n          reason\n        }\n        account {\n          id\n          name\n        }\n        pool {\n          id\n          name\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.BootstrapsDocument,
    "\n  subscription BootstrapsChanged($tenant: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, after: $after) {\n      cursor\n    }\n  }\n": types.BootstrapsChangedDocument,
    "\n  query WaitingForPeople($tenant: ID!) {\n    uncertain: bootstraps(tenantId: $tenant, waitReasons: [\"CLAIM_UNCERTAIN\"], first: 1) {\n      nodes {\n        id\n      }\n    }\n    blocked: bootstraps(tenantId: $tenant, cleanups: [BLOCKED], first: 1) {\n      nodes {\n        id\n      }\n    }\n  }\n": types.WaitingForPeopleDocument,
    "\n  query StartContext($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n    }\n  }\n": types.StartContextDocument,
    "\n  query PoolsToStart($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.PoolsToStartDocument,
    "\n  query Plan($tenant: ID!, $account: ID!, $pool: ID!, $machine: ID, $offer: ID) {\n    planBootstrap(tenantId: $tenant, accountId: $account, poolId: $pool, machineId: $machine, offerId: $offer) {\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      wipes\n      expectedMinutes\n      ready\n      preconditions {\n        name\n        ok\n        message\n        code\n      }\n    }\n  }\n": types.PlanDocument,
    "\n  mutation StartBootstrap($input: BootstrapMachineInput!) {\n    bootstrapMachine(input: $input) {\n      replayed\n      bootstrap {\n        id\n        status\n      }\n    }\n  }\n": types.StartBootstrapDocument,
    "\n  query OfferAccounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          capabilities {\n            offers\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.OfferAccountsDocument,
    "\n  query Orphans($tenant: ID!, $after: String) {\n    orphans(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        accountId\n        kind\n        machineId\n        operationId\n        bootstrapId\n        hostId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        firstSeenAt\n        lastSeenAt\n        resolvedAt\n        release {\n          requestedAt\n          requestedBy\n          attempts\n          lastError\n          nextTryAt\n          droppedAt\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.OrphansDocument,
    "\n  mutation ReleaseMachine($input: ReleaseMachineInput!) {\n    releaseMachine(input: $input) {\n      orphan {\n        id\n        resolvedAt\n        release {\n          requestedAt\n        }\n      }\n    }\n  }\n": types.ReleaseMachineDocument,
    "\n  query Pool($tenant: ID!, $pool: ID!, $removed: Boolean!, $after: String) {\n    pool(tenantId: $tenant, poolId: $pool) {\n      id\n      name\n      class\n      agent\n      archivedAt\n      createdAt\n      account {\n        id\n        name\n      }\n      hosts(includeRemoved: $removed, first: 25, after: $after) {\n        nodes {\n          id\n          machineId\n          bootstrapId\n          joinedAt\n          lastSeenAt\n          agentVersion\n          certificateNotAfter\n          removedAt\n        }\n        pageInfo {\n          hasNextPage\n          endCursor\n        }\n      }\n    }\n  }\n": types.PoolDocument,
    "\n  mutation ArchivePool($input: ArchivePoolInput!) {\n    archivePool(input: $input) {\n      pool {\n        id\n        archivedAt\n      }\n    }\n  }\n": types.ArchivePoolDocument,
    "\n  mutation RemoveHost($input: RemoveHostInput!) {\n    removeHost(input: $input) {\n      host {\n        id\n        removedAt\n      }\n    }\n  }\n": types.RemoveHostDocument,
    "\n  query Pools($tenant: ID!, $archived: Boolean!, $after: String) {\n    pools(tenantId: $tenant, includeArchived: $archived, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n        archivedAt\n        createdAt\n        account {\n          id\n          name\n        }\n        hosts(first: 20) {\n          nodes {\n            id\n          }\n          pageInfo {\n            hasNextPage\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.PoolsDocument,
    "\n  mutation CreatePool($input: CreatePoolInput!) {\n    createPool(input: $input) {\n      pool {\n        id\n        name\n      }\n    }\n  }\n": types.CreatePoolDocument,
    "\n  query AccountNames($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n": types.AccountNamesDocument,
    "\n  query Secrets($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n      createdAt\n      updatedAt\n    }\n  }\n": types.SecretsDocument,
    "\n  mutation DeleteSecret($input: DeleteSecretInput!) {\n    deleteSecret(input: $input) {\n      deleted\n    }\n  }\n": types.DeleteSecretDocument,
    "\n  query Settings {\n    viewer {\n      subject\n      groups\n      tenants\n    }\n    server {\n      version\n    }\n    providers {\n      name\n      displayName\n      capabilities {\n        offers\n        machines\n        order\n        bootstrap\n        release\n        prices\n        liveStock\n      }\n    }\n  }\n": types.SettingsDocument,
    "\n  query ViewerTenants {\n    viewer {\n      subject\n      tenants\n    }\n  }\n": types.ViewerTenantsDocument,
    "\n  mutation CheckAccount($input: CheckProviderAccountInput!) {\n    checkProviderAccount(input: $input) {\n      providerAccount {\n        id\n        check {\n          ok\n          reason\n          message\n          at\n        }\n      }\n    }\n  }\n": types.CheckAccountDocument,
    "\n  mutation DeleteAccount($input: DeleteProviderAccountInput!) {\n    deleteProviderAccount(input: $input) {\n      deletedId\n    }\n  }\n": types.DeleteAccountDocument,
    "\n  query ObjectRights($tenant: ID!, $object: ID!) {\n    viewer {\n      permissions(tenantId: $tenant, objectId: $object)\n    }\n  }\n": types.ObjectRightsDocument,
    "\n  query WhoAmI {\n    viewer {\n      subject\n    }\n  }\n": types.WhoAmIDocument,
    "\n  query SecretNames($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n    }\n  }\n": types.SecretNamesDocument,
    "\n  mutation PutSecret($input: PutSecretInput!) {\n    putSecret(input: $input) {\n      secret {\n        name\n        createdAt\n        updatedAt\n      }\n    }\n  }\n": types.PutSecretDocument,
};

/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 *
 *
 * @example
 * ```ts
 * const query = graphql(`query GetUser($id: ID!) { user(id: $id) { name } }`);
 * ```
 *
 * The query argument is unknown!
 * Please regenerate the types.
 */
export function graphql(source: string): unknown;

/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query ShellViewer($tenant: ID!) {\n    viewer {\n      subject\n      tenants\n      permissions(tenantId: $tenant)\n    }\n  }\n"): (typeof documents)["\n  query ShellViewer($tenant: ID!) {\n    viewer {\n      subject\n      tenants\n      permissions(tenantId: $tenant)\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Offers($tenant: ID!, $account: ID!, $query: OfferQuery) {\n    offers(tenantId: $tenant, accountId: $account, query: $query) {\n      id\n      kind\n      region\n      name\n      arch\n      vcpu\n      memoryGiB\n      disks {\n        sizeGB\n        count\n        media\n      }\n      gpu {\n        model\n        count\n        memoryGiB\n      }\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      availability\n      observedAt\n    }\n  }\n"): (typeof documents)["\n  query Offers($tenant: ID!, $account: ID!, $query: OfferQuery) {\n    offers(tenantId: $tenant, accountId: $account, query: $query) {\n      id\n      kind\n      region\n      name\n      arch\n      vcpu\n      memoryGiB\n      disks {\n        sizeGB\n        count\n        media\n      }\n      gpu {\n        model\n        count\n        memoryGiB\n      }\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      availability\n      observedAt\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query RoleBindings($tenant: ID!, $after: String) {\n    roleBindings(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        subject\n        role\n        object\n        effect\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query RoleBindings($tenant: ID!, $after: String) {\n    roleBindings(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        subject\n        role\n        object\n        effect\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Roles {\n    roles {\n      name\n      description\n      permissions\n      builtIn\n    }\n  }\n"): (typeof documents)["\n  query Roles {\n    roles {\n      name\n      description\n      permissions\n      builtIn\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query ApiTokens($tenant: ID!, $after: String) {\n    apiTokens(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        subject\n        description\n        createdBy\n        createdAt\n        expiresAt\n        lastUsedAt\n        revokedAt\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query ApiTokens($tenant: ID!, $after: String) {\n    apiTokens(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        subject\n        description\n        createdBy\n        createdAt\n        expiresAt\n        lastUsedAt\n        revokedAt\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation GrantRole($input: GrantRoleInput!) {\n    grantRole(input: $input) {\n      roleBinding {\n        subject\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation GrantRole($input: GrantRoleInput!) {\n    grantRole(input: $input) {\n      roleBinding {\n        subject\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation RevokeRole($input: RevokeRoleInput!) {\n    revokeRole(input: $input) {\n      revoked\n    }\n  }\n"): (typeof documents)["\n  mutation RevokeRole($input: RevokeRoleInput!) {\n    revokeRole(input: $input) {\n      revoked\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CreateToken($input: CreateApiTokenInput!) {\n    createApiToken(input: $input) {\n      token\n      apiToken {\n        id\n        subject\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CreateToken($input: CreateApiTokenInput!) {\n    createApiToken(input: $input) {\n      token\n      apiToken {\n        id\n        subject\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation RevokeToken($input: RevokeApiTokenInput!) {\n    revokeApiToken(input: $input) {\n      apiToken {\n        id\n        revokedAt\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation RevokeToken($input: RevokeApiTokenInput!) {\n    revokeApiToken(input: $input) {\n      apiToken {\n        id\n        revokedAt\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation DefineRole($input: DefineRoleInput!) {\n    defineRole(input: $input) {\n      role {\n        name\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation DefineRole($input: DefineRoleInput!) {\n    defineRole(input: $input) {\n      role {\n        name\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation DeleteRole($input: DeleteRoleInput!) {\n    deleteRole(input: $input) {\n      deleted\n    }\n  }\n"): (typeof documents)["\n  mutation DeleteRole($input: DeleteRoleInput!) {\n    deleteRole(input: $input) {\n      deleted\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query FleetRights {\n    viewer {\n      permissions\n    }\n  }\n"): (typeof documents)["\n  query FleetRights {\n    viewer {\n      permissions\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Account($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      provider {\n        name\n        displayName\n        capabilities {\n          offers\n          machines\n          bootstrap\n        }\n      }\n      config\n      version\n      createdAt\n      updatedAt\n      check {\n        ok\n        reason\n        message\n        at\n      }\n      bootstraps(first: 10) {\n        nodes {\n          id\n          status\n          waitReason\n          machineId\n          createdAt\n        }\n        pageInfo {\n          hasNextPage\n        }\n      }\n    }\n  }\n"): (typeof documents)["\n  query Account($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      provider {\n        name\n        displayName\n        capabilities {\n          offers\n          machines\n          bootstrap\n        }\n      }\n      config\n      version\n      createdAt\n      updatedAt\n      check {\n        ok\n        reason\n        message\n        at\n      }\n      bootstraps(first: 10) {\n        nodes {\n          id\n          status\n          waitReason\n          machineId\n          createdAt\n        }\n        pageInfo {\n          hasNextPage\n        }\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Machines($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      machines {\n        id\n        name\n        kind\n        region\n        status\n        addresses\n        inUse\n      }\n    }\n  }\n"): (typeof documents)["\n  query Machines($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      machines {\n        id\n        name\n        kind\n        region\n        status\n        addresses\n        inUse\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Providers {\n    providers {\n      name\n      displayName\n      configSchema\n      secretFields\n    }\n  }\n"): (typeof documents)["\n  query Providers {\n    providers {\n      name\n      displayName\n      configSchema\n      secretFields\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query AccountToEdit($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      version\n      config\n      provider {\n        name\n      }\n    }\n  }\n"): (typeof documents)["\n  query AccountToEdit($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n      version\n      config\n      provider {\n        name\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CreateAccount($input: CreateProviderAccountInput!) {\n    createProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CreateAccount($input: CreateProviderAccountInput!) {\n    createProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CheckConfig($input: CheckProviderConfigInput!) {\n    checkProviderConfig(input: $input) {\n      check {\n        ok\n        message\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CheckConfig($input: CheckProviderConfigInput!) {\n    checkProviderConfig(input: $input) {\n      check {\n        ok\n        message\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation UpdateAccount($input: UpdateProviderAccountInput!) {\n    updateProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation UpdateAccount($input: UpdateProviderAccountInput!) {\n    updateProviderAccount(input: $input) {\n      providerAccount {\n        id\n        version\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Accounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          displayName\n        }\n        check {\n          ok\n          reason\n          at\n        }\n        updatedAt\n        bootstraps(first: 20, statuses: [CLAIMING, IDENTIFYING, PREPARING, INSTALLING, INSTALLED]) {\n          nodes {\n            id\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query Accounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 50, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          displayName\n        }\n        check {\n          ok\n          reason\n          at\n        }\n        updatedAt\n        bootstraps(first: 20, statuses: [CLAIMING, IDENTIFYING, PREPARING, INSTALLING, INSTALLED]) {\n          nodes {\n            id\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query PoolAccounts($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        account {\n          id\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query PoolAccounts($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        account {\n          id\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query AuditEvents($tenant: ID!, $filter: AuditEventFilter, $after: String) {\n    auditEvents(tenantId: $tenant, filter: $filter, first: 50, after: $after) {\n      nodes {\n        id\n        at\n        actor\n        action\n        object\n        outcome\n        requestId\n        details\n        sequence\n        hash\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query AuditEvents($tenant: ID!, $filter: AuditEventFilter, $after: String) {\n    auditEvents(tenantId: $tenant, filter: $filter, first: 50, after: $after) {\n      nodes {\n        id\n        at\n        actor\n        action\n        object\n        outcome\n        requestId\n        details\n        sequence\n        hash\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Bootstrap($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      accountId\n      machineId\n      offerId\n      status\n      step\n      waitReason\n      attempt\n      cleanup\n      hostId\n      createdAt\n      deadlineAt\n      retryOf\n      failure {\n        reason\n        message\n        logTail\n      }\n      account {\n        id\n        name\n      }\n      pool {\n        id\n        name\n      }\n      history {\n        from\n        to\n        at\n        until\n        reason\n      }\n    }\n  }\n"): (typeof documents)["\n  query Bootstrap($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      accountId\n      machineId\n      offerId\n      status\n      step\n      waitReason\n      attempt\n      cleanup\n      hostId\n      createdAt\n      deadlineAt\n      retryOf\n      failure {\n        reason\n        message\n        logTail\n      }\n      account {\n        id\n        name\n      }\n      pool {\n        id\n        name\n      }\n      history {\n        from\n        to\n        at\n        until\n        reason\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  subscription BootstrapChanged($tenant: ID!, $bootstrap: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $bootstrap, after: $after) {\n      cursor\n      to\n    }\n  }\n"): (typeof documents)["\n  subscription BootstrapChanged($tenant: ID!, $bootstrap: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $bootstrap, after: $after) {\n      cursor\n      to\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CancelBootstrap($input: CancelBootstrapInput!) {\n    cancelBootstrap(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n        cleanup\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CancelBootstrap($input: CancelBootstrapInput!) {\n    cancelBootstrap(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n        cleanup\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation RetryBootstrap($input: RetryBootstrapInput!) {\n    retryBootstrap(input: $input) {\n      bootstrap {\n        id\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation RetryBootstrap($input: RetryBootstrapInput!) {\n    retryBootstrap(input: $input) {\n      bootstrap {\n        id\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Claim($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      claim {\n        operationId\n        offerId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        intendedAt\n        attemptedAt\n        orderRef\n        lastError\n        candidates {\n          id\n          name\n          status\n          region\n        }\n      }\n    }\n  }\n"): (typeof documents)["\n  query Claim($tenant: ID!, $bootstrap: ID!) {\n    bootstrap(tenantId: $tenant, bootstrapId: $bootstrap) {\n      id\n      claim {\n        operationId\n        offerId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        intendedAt\n        attemptedAt\n        orderRef\n        lastError\n        candidates {\n          id\n          name\n          status\n          region\n        }\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation ResolveClaim($input: ResolveClaimInput!) {\n    resolveClaim(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation ResolveClaim($input: ResolveClaimInput!) {\n    resolveClaim(input: $input) {\n      bootstrap {\n        id\n        status\n        step\n        waitReason\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Bootstraps(\n    $tenant: ID!\n    $account: ID\n    $pool: ID\n    $statuses: [BootstrapStatus!]\n    $waitReasons: [String!]\n    $cleanups: [CleanupStatus!]\n    $after: String\n  ) {\n    bootstraps(\n      tenantId: $tenant\n      accountId: $account\n      poolId: $pool\n      statuses: $statuses\n      waitReasons: $waitReasons\n      cleanups: $cleanups\n      first: 25\n      after: $after\n    ) {\n      nodes {\n        id\n        status\n        step\n        waitReason\n        machineId\n        createdAt\n        failure {\n          reason\n        }\n        account {\n          id\n          name\n        }\n        pool {\n          id\n          name\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query Bootstraps(\n    $tenant: ID!\n    $account: ID\n    $pool: ID\n    $statuses: [BootstrapStatus!]\n    $waitReasons: [String!]\n    $cleanups: [CleanupStatus!]\n    $after: String\n  ) {\n    bootstraps(\n      tenantId: $tenant\n      accountId: $account\n      poolId: $pool\n      statuses: $statuses\n      waitReasons: $waitReasons\n      cleanups: $cleanups\n      first: 25\n      after: $after\n    ) {\n      nodes {\n        id\n        status\n        step\n        waitReason\n        machineId\n        createdAt\n        failure {\n          reason\n        }\n        account {\n          id\n          name\n        }\n        pool {\n          id\n          name\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  subscription BootstrapsChanged($tenant: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, after: $after) {\n      cursor\n    }\n  }\n"): (typeof documents)["\n  subscription BootstrapsChanged($tenant: ID!, $after: String) {\n    bootstrapStatusChanged(tenantId: $tenant, after: $after) {\n      cursor\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query WaitingForPeople($tenant: ID!) {\n    uncertain: bootstraps(tenantId: $tenant, waitReasons: [\"CLAIM_UNCERTAIN\"], first: 1) {\n      nodes {\n        id\n      }\n    }\n    blocked: bootstraps(tenantId: $tenant, cleanups: [BLOCKED], first: 1) {\n      nodes {\n        id\n      }\n    }\n  }\n"): (typeof documents)["\n  query WaitingForPeople($tenant: ID!) {\n    uncertain: bootstraps(tenantId: $tenant, waitReasons: [\"CLAIM_UNCERTAIN\"], first: 1) {\n      nodes {\n        id\n      }\n    }\n    blocked: bootstraps(tenantId: $tenant, cleanups: [BLOCKED], first: 1) {\n      nodes {\n        id\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query StartContext($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n    }\n  }\n"): (typeof documents)["\n  query StartContext($tenant: ID!, $account: ID!) {\n    providerAccount(tenantId: $tenant, accountId: $account) {\n      id\n      name\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query PoolsToStart($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query PoolsToStart($tenant: ID!, $after: String) {\n    pools(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Plan($tenant: ID!, $account: ID!, $pool: ID!, $machine: ID, $offer: ID) {\n    planBootstrap(tenantId: $tenant, accountId: $account, poolId: $pool, machineId: $machine, offerId: $offer) {\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      wipes\n      expectedMinutes\n      ready\n      preconditions {\n        name\n        ok\n        message\n        code\n      }\n    }\n  }\n"): (typeof documents)["\n  query Plan($tenant: ID!, $account: ID!, $pool: ID!, $machine: ID, $offer: ID) {\n    planBootstrap(tenantId: $tenant, accountId: $account, poolId: $pool, machineId: $machine, offerId: $offer) {\n      price {\n        hourly\n        monthly\n        setup\n        currency\n        taxIncluded\n      }\n      wipes\n      expectedMinutes\n      ready\n      preconditions {\n        name\n        ok\n        message\n        code\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation StartBootstrap($input: BootstrapMachineInput!) {\n    bootstrapMachine(input: $input) {\n      replayed\n      bootstrap {\n        id\n        status\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation StartBootstrap($input: BootstrapMachineInput!) {\n    bootstrapMachine(input: $input) {\n      replayed\n      bootstrap {\n        id\n        status\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query OfferAccounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          capabilities {\n            offers\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query OfferAccounts($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n        provider {\n          name\n          capabilities {\n            offers\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Orphans($tenant: ID!, $after: String) {\n    orphans(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        accountId\n        kind\n        machineId\n        operationId\n        bootstrapId\n        hostId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        firstSeenAt\n        lastSeenAt\n        resolvedAt\n        release {\n          requestedAt\n          requestedBy\n          attempts\n          lastError\n          nextTryAt\n          droppedAt\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query Orphans($tenant: ID!, $after: String) {\n    orphans(tenantId: $tenant, first: 25, after: $after) {\n      nodes {\n        id\n        accountId\n        kind\n        machineId\n        operationId\n        bootstrapId\n        hostId\n        price {\n          hourly\n          monthly\n          setup\n          currency\n          taxIncluded\n        }\n        firstSeenAt\n        lastSeenAt\n        resolvedAt\n        release {\n          requestedAt\n          requestedBy\n          attempts\n          lastError\n          nextTryAt\n          droppedAt\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation ReleaseMachine($input: ReleaseMachineInput!) {\n    releaseMachine(input: $input) {\n      orphan {\n        id\n        resolvedAt\n        release {\n          requestedAt\n        }\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation ReleaseMachine($input: ReleaseMachineInput!) {\n    releaseMachine(input: $input) {\n      orphan {\n        id\n        resolvedAt\n        release {\n          requestedAt\n        }\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Pool($tenant: ID!, $pool: ID!, $removed: Boolean!, $after: String) {\n    pool(tenantId: $tenant, poolId: $pool) {\n      id\n      name\n      class\n      agent\n      archivedAt\n      createdAt\n      account {\n        id\n        name\n      }\n      hosts(includeRemoved: $removed, first: 25, after: $after) {\n        nodes {\n          id\n          machineId\n          bootstrapId\n          joinedAt\n          lastSeenAt\n          agentVersion\n          certificateNotAfter\n          removedAt\n        }\n        pageInfo {\n          hasNextPage\n          endCursor\n        }\n      }\n    }\n  }\n"): (typeof documents)["\n  query Pool($tenant: ID!, $pool: ID!, $removed: Boolean!, $after: String) {\n    pool(tenantId: $tenant, poolId: $pool) {\n      id\n      name\n      class\n      agent\n      archivedAt\n      createdAt\n      account {\n        id\n        name\n      }\n      hosts(includeRemoved: $removed, first: 25, after: $after) {\n        nodes {\n          id\n          machineId\n          bootstrapId\n          joinedAt\n          lastSeenAt\n          agentVersion\n          certificateNotAfter\n          removedAt\n        }\n        pageInfo {\n          hasNextPage\n          endCursor\n        }\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation ArchivePool($input: ArchivePoolInput!) {\n    archivePool(input: $input) {\n      pool {\n        id\n        archivedAt\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation ArchivePool($input: ArchivePoolInput!) {\n    archivePool(input: $input) {\n      pool {\n        id\n        archivedAt\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation RemoveHost($input: RemoveHostInput!) {\n    removeHost(input: $input) {\n      host {\n        id\n        removedAt\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation RemoveHost($input: RemoveHostInput!) {\n    removeHost(input: $input) {\n      host {\n        id\n        removedAt\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Pools($tenant: ID!, $archived: Boolean!, $after: String) {\n    pools(tenantId: $tenant, includeArchived: $archived, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n        archivedAt\n        createdAt\n        account {\n          id\n          name\n        }\n        hosts(first: 20) {\n          nodes {\n            id\n          }\n          pageInfo {\n            hasNextPage\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query Pools($tenant: ID!, $archived: Boolean!, $after: String) {\n    pools(tenantId: $tenant, includeArchived: $archived, first: 25, after: $after) {\n      nodes {\n        id\n        name\n        class\n        agent\n        archivedAt\n        createdAt\n        account {\n          id\n          name\n        }\n        hosts(first: 20) {\n          nodes {\n            id\n          }\n          pageInfo {\n            hasNextPage\n          }\n        }\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CreatePool($input: CreatePoolInput!) {\n    createPool(input: $input) {\n      pool {\n        id\n        name\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CreatePool($input: CreatePoolInput!) {\n    createPool(input: $input) {\n      pool {\n        id\n        name\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query AccountNames($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"): (typeof documents)["\n  query AccountNames($tenant: ID!, $after: String) {\n    providerAccounts(tenantId: $tenant, first: 100, after: $after) {\n      nodes {\n        id\n        name\n      }\n      pageInfo {\n        hasNextPage\n        endCursor\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Secrets($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n      createdAt\n      updatedAt\n    }\n  }\n"): (typeof documents)["\n  query Secrets($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n      createdAt\n      updatedAt\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation DeleteSecret($input: DeleteSecretInput!) {\n    deleteSecret(input: $input) {\n      deleted\n    }\n  }\n"): (typeof documents)["\n  mutation DeleteSecret($input: DeleteSecretInput!) {\n    deleteSecret(input: $input) {\n      deleted\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query Settings {\n    viewer {\n      subject\n      groups\n      tenants\n    }\n    server {\n      version\n    }\n    providers {\n      name\n      displayName\n      capabilities {\n        offers\n        machines\n        order\n        bootstrap\n        release\n        prices\n        liveStock\n      }\n    }\n  }\n"): (typeof documents)["\n  query Settings {\n    viewer {\n      subject\n      groups\n      tenants\n    }\n    server {\n      version\n    }\n    providers {\n      name\n      displayName\n      capabilities {\n        offers\n        machines\n        order\n        bootstrap\n        release\n        prices\n        liveStock\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query ViewerTenants {\n    viewer {\n      subject\n      tenants\n    }\n  }\n"): (typeof documents)["\n  query ViewerTenants {\n    viewer {\n      subject\n      tenants\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation CheckAccount($input: CheckProviderAccountInput!) {\n    checkProviderAccount(input: $input) {\n      providerAccount {\n        id\n        check {\n          ok\n          reason\n          message\n          at\n        }\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation CheckAccount($input: CheckProviderAccountInput!) {\n    checkProviderAccount(input: $input) {\n      providerAccount {\n        id\n        check {\n          ok\n          reason\n          message\n          at\n        }\n      }\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation DeleteAccount($input: DeleteProviderAccountInput!) {\n    deleteProviderAccount(input: $input) {\n      deletedId\n    }\n  }\n"): (typeof documents)["\n  mutation DeleteAccount($input: DeleteProviderAccountInput!) {\n    deleteProviderAccount(input: $input) {\n      deletedId\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query ObjectRights($tenant: ID!, $object: ID!) {\n    viewer {\n      permissions(tenantId: $tenant, objectId: $object)\n    }\n  }\n"): (typeof documents)["\n  query ObjectRights($tenant: ID!, $object: ID!) {\n    viewer {\n      permissions(tenantId: $tenant, objectId: $object)\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query WhoAmI {\n    viewer {\n      subject\n    }\n  }\n"): (typeof documents)["\n  query WhoAmI {\n    viewer {\n      subject\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  query SecretNames($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n    }\n  }\n"): (typeof documents)["\n  query SecretNames($tenant: ID!) {\n    secrets(tenantId: $tenant) {\n      name\n    }\n  }\n"];
/**
 * The graphql function is used to parse GraphQL queries into a document that can be used by GraphQL clients.
 */
export function graphql(source: "\n  mutation PutSecret($input: PutSecretInput!) {\n    putSecret(input: $input) {\n      secret {\n        name\n        createdAt\n        updatedAt\n      }\n    }\n  }\n"): (typeof documents)["\n  mutation PutSecret($input: PutSecretInput!) {\n    putSecret(input: $input) {\n      secret {\n        name\n        createdAt\n        updatedAt\n      }\n    }\n  }\n"];

export function graphql(source: string) {
  return (documents as any)[source] ?? {};
}

export type DocumentType<TDocumentNode extends DocumentNode<any, any>> = TDocumentNode extends DocumentNode<  infer TType,  any>  ? TType  : never;