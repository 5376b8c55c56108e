// Moves what Vite built into dist, with a Brotli and a gzip copy of each text beside it, and then drops what was there before.
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, extname, join, relative } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const from = 'build';
const to = 'dist';
const text = new Set(['.js', '.css', '.html', '.svg', '.txt']);

async function filesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((e) => e.isFile()).map((e) => relative(folder, join(e.parentPath, e.name)));
}

async function put(name, content) {
  const path = join(to, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(`${path}.new`, content);
  await rename(`${path}.new`, path);
  return name;
}

const kept = new Set();
const files = await filesBelow(from);
files.sort((a, b) => Number(a === 'index.html') - Number(b === 'index.html')); // it names the others, so it comes last
for (const name of files) {
  const content = await readFile(join(from, name));
  kept.add(await put(name, content));
  if (!text.has(extname(name)) || name === 'index.html') continue; // index.html gets a nonce each time
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 10, [constants.BROTLI_PARAM_SIZE_HINT]: content.length } };
  kept.add(await put(`${name}.br`, brotliCompressSync(content, quality)));
  kept.add(await put(`${name}.gz`, gzipSync(content, { level: 9 })));
}
for (const name of await filesBelow(to)) {
  if (!kept.has(name)) await rm(join(to, name));
}
await rm(from, { recursive: true });
