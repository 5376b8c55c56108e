import type { CodegenConfig } from '@graphql-codegen/cli';

const config: CodegenConfig = {
  schema: '../schema/*.graphqls',
  documents: ['src/**/*.{ts,tsx}', '!src/gql/**'],
  generates: {
    './src/gql/': {
      preset: 'client',
      presetConfig: { fragmentMasking: false },
      config: {
        scalars: { Time: 'string', JSON: 'Record<string, unknown>', ID: 'string' },
        enumsAsTypes: true,
        useTypeImports: true,
        strictScalars: true,
        documentVariablePrefix: '',
      },
    },
  },
};

export default config;
