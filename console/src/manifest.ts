// Makes a form of a provider's schema: which fields take a secret, and what fields are called.

import type { RJSFSchema, UiSchema } from '@rjsf/utils';

const reference = /^(secret|vault|env):\/\//;

/** privateKey becomes "Private key". */
function label(name: string): string {
  const spaced = name.replace(/([a-z0-9])([A-Z])/g, '$1 $2').toLowerCase();
  const text = spaced.charAt(0).toUpperCase() + spaced.slice(1);
  return text.replace(
    /\b(api|ssh|url|gib|gb|ip|id)\b/gi,
    (word) => ({ gib: 'GiB', vcpu: 'vCPU' })[word.toLowerCase()] ?? word.toUpperCase(),
  );
}

function resolve(schema: RJSFSchema, root: RJSFSchema): RJSFSchema {
  const name = schema.$ref?.replace(/^#\/\$defs\//, '');
  const target = name ? root.$defs?.[name] : undefined;
  return typeof target === 'object' ? { ...target, ...schema } : schema;
}

function examplesOf(schema: RJSFSchema): string[] {
  return Array.isArray(schema.examples) ? schema.examples.filter((e): e is string => typeof e === 'string') : [];
}

function uiOf(schema: RJSFSchema, root: RJSFSchema, pointer: string, secrets: string[]): UiSchema {
  const here = resolve(schema, root);
  const ui: UiSchema = {};
  for (const [name, property] of Object.entries(here.properties ?? {})) {
    if (typeof property !== 'object') continue;
    const at = `${pointer}/${name}`;
    const child = uiOf(property, root, at, secrets);
    const full = resolve(property, root);
    if (!full.title) child['ui:title'] = label(name);
    ui[name] = child;
  }
  if (typeof here.items === 'object' && !Array.isArray(here.items)) ui.items = uiOf(here.items, root, `${pointer}/*`, secrets);
  const [example] = examplesOf(here);
  if (secrets.includes(pointer) || (here.type === 'string' && example !== undefined && reference.test(example))) ui['ui:widget'] = 'secret';
  if (here.type === 'string' && example !== undefined && !here.enum) ui['ui:placeholder'] = example;
  return ui;
}

/** The schema without its examples, which the form shows itself, and with descriptions that are no Markdown. */
function forPeople(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(forPeople);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, child]) => key !== 'examples' || !Array.isArray(child))
      .map(([key, child]) => [
        key,
        key === 'description' && typeof child === 'string' ? child.replace(/`([^`]+)`/g, '“$1”') : forPeople(child),
      ]),
  );
}

export interface ConfigForm {
  schema: RJSFSchema;
  ui: UiSchema;
}

export function configForm(configSchema: Record<string, unknown>, secretFields: readonly string[]): ConfigForm {
  const root = configSchema as RJSFSchema;
  const ui = uiOf(root, root, '', [...secretFields]);
  const schema = forPeople(root) as RJSFSchema;
  delete schema.title; // the page says it
  delete schema.description;
  delete schema.$schema;
  return { schema, ui: { ...ui, 'ui:submitButtonOptions': { norender: true } } };
}
