import js from '@eslint/js';
import jsxA11y from 'eslint-plugin-jsx-a11y';
import reactHooks from 'eslint-plugin-react-hooks';
import globals from 'globals';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'build', 'src/gql', 'test-results', 'screenshots'] },
  js.configs.recommended,
  { files: ['scripts/**', '*.js'], languageOptions: { globals: globals.node } },
  {
    files: ['**/*.{ts,tsx}'],
    extends: [tseslint.configs.strictTypeChecked, jsxA11y.flatConfigs.recommended, reactHooks.configs.flat.recommended],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // What scrolls must take the focus, or nobody scrolls it by keyboard.
      'jsx-a11y/no-noninteractive-tabindex': 'off',
      'react-hooks/incompatible-library': 'off', // the compiler that it speaks of is not used
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
    },
  },
  {
    // Playwright's fixtures are named like hooks, and take what they do not need as an empty pattern.
    files: ['e2e/**', 'shots/**'],
    rules: { 'react-hooks/rules-of-hooks': 'off', 'no-empty-pattern': 'off' },
  },
);
