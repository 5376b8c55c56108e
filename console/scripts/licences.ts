// A plugin of the build that writes licences.txt: what is shipped with the console of other people's, and under which licence. A package whose licence
// asks for more than to be named does not get in.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'vite';

const allowed = new Set(['MIT', 'ISC', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD']);

/** The folder of the package that a module belongs to; null for one of our own. */
function packageOf(module: string): string | null {
  const [, folder] = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module.replace(/^\0/, '').replace(/\?.*$/, '')) ?? [];
  return folder !== undefined && existsSync(join(folder, 'package.json')) ? folder : null;
}

function textOf(folder: string): string {
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  return file ? readFileSync(join(folder, file), 'utf8').trim() : 'The package has no text of it.';
}

function isAllowed(licence: string): boolean {
  return licence
    .replace(/[()]/g, '')
    .split(' OR ')
    .some((choice) => choice.split(' AND ').every((part) => allowed.has(part.trim())));
}

interface Manifest {
  name: string;
  version: string;
  license?: string;
}

export function licences(): Plugin {
  return {
    name: 'licences',
    generateBundle() {
      const folders = new Set([...this.getModuleIds()].map(packageOf).filter((folder) => folder !== null));
      const found = [...folders].map((folder) => {
        const { name, version, license = 'none' } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;
        if (!isAllowed(license)) this.error(`${name}@${version} has the licence ${license}, which scripts/licences.ts does not let in`);
        return { title: `${name} ${version} (${license})`, text: textOf(folder) };
      });
      found.sort((a, b) => a.title.localeCompare(b.title));
      const source = found.map(({ title, text }) => `${title}\n\n${text}\n`).join(`\n${'-'.repeat(80)}\n\n`);
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: `The console contains these packages:\n\n${source}` });
    },
  };
}
