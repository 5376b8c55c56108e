import react from '@vitejs/plugin-react';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { licences } from './scripts/licences.ts';

// Built aside: scripts/pack.mjs then moves the files into dist, so that a Go build beside it never sees half of them.
export default defineConfig({
  plugins: [react(), licences()],
  resolve: { alias: { '@rjsf/validator-ajv8': fileURLToPath(new URL('src/ajv.ts', import.meta.url)) } },
  build: { outDir: 'build', emptyOutDir: true, target: 'es2022', modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
  server: { proxy: { '/graphql': { target: 'http://127.0.0.1:8080', ws: true }, '/console.json': 'http://127.0.0.1:8080' } },
});
