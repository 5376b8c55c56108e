// The rules of the schema, so far as a linter can hold them; docs/schema.md has them all.
import plugin from '@graphql-eslint/eslint-plugin';

// Types that are no objects of ours with an id of their own: facts that a provider states, and values that belong to something else.
const values = [
  'BootstrapClaim', 'BootstrapFailure', 'BootstrapPlan', 'BootstrapPrecondition', 'BootstrapStatusChange',
  'BootstrapTransition', 'Disk', 'Gpu', 'Machine', 'Offer', 'OrphanRelease', 'Price', 'Provider', 'ProviderAccountCheck',
  'ProviderCapabilities', 'Role', 'RoleBinding', 'Secret', 'Server', 'Viewer',
];

export default [
  {
    files: ['*.graphqls'],
    languageOptions: {
      parser: plugin.parser,
      parserOptions: { graphQLConfig: { schema: './*.graphqls' } },
    },
    plugins: { '@graphql-eslint': plugin },
    rules: {
      ...plugin.configs['flat/schema-recommended'].rules,
      ...plugin.configs['flat/schema-relay'].rules,
      '@graphql-eslint/require-description': [
        'error',
        { types: true, DirectiveDefinition: true, EnumValueDefinition: true, FieldDefinition: true, InputValueDefinition: true, rootField: true },
      ],
      '@graphql-eslint/input-name': ['error', { checkInputType: true, caseSensitiveInputType: false }],
      '@graphql-eslint/no-scalar-result-type-on-mutation': 'error',
      '@graphql-eslint/require-nullable-result-in-root': 'error',
      // Pages go forwards only: `first` and `after`.
      '@graphql-eslint/relay-arguments': ['error', { includeBoth: false }],
      // A connection has `nodes` beside `edges`, and a list may hold plain values.
      '@graphql-eslint/relay-edge-types': ['error', { withEdgeSuffix: true, shouldImplementNode: false, listTypeCanWrapOnlyEdgeType: false }],
      '@graphql-eslint/strict-id-in-types': [
        'error',
        { exceptions: { types: ['PageInfo', ...values], suffixes: ['Connection', 'Edge', 'Payload'] } },
      ],
      // A description of one line stands in quotes, a longer one in a block.
      '@graphql-eslint/description-style': 'off',
      // It wants the date as an argument that no standard @deprecated has.
      '@graphql-eslint/require-deprecation-date': 'off',
    },
  },
];
