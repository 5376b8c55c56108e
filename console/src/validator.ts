// A validator for the form library that makes no code at run time, as the page's content policy forbids that.

import { Validator } from '@cfworker/json-schema';
import { toErrorSchema, type RJSFSchema, type RJSFValidationError, type ValidationData, type ValidatorType } from '@rjsf/utils';

function judge(schema: RJSFSchema | boolean, data: unknown, root?: RJSFSchema) {
  const full = typeof schema === 'object' && root?.$defs && !schema.$defs ? { ...schema, $defs: root.$defs } : schema;
  return new Validator(full as ConstructorParameters<typeof Validator>[0], '2020-12', false).validate(data);
}

/** A JSON pointer as the form library names properties: /machines/0/id is .machines.0.id. */
function propertyOf(pointer: string): string {
  return pointer
    .replace(/^#/, '')
    .split('/')
    .map((part) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.');
}

function errorsOf(schema: RJSFSchema, data: unknown): RJSFValidationError[] {
  const { errors } = judge(schema, data);
  // What says only that something below is wrong is left out: the fields say what.
  const said = errors.filter((e) => !['properties', 'items', '$ref', 'allOf'].includes(e.keyword));
  return said.map((e) => {
    const missing = e.keyword === 'required' ? /"([^"]+)"/.exec(e.error)?.[1] : undefined;
    const property = propertyOf(e.instanceLocation) + (missing ? `.${missing}` : '');
    return { name: e.keyword, property, message: missing ? 'is needed' : wordingOf(e.keyword, e.error), stack: `${property} ${e.error}` };
  });
}

function wordingOf(keyword: string, error: string): string {
  return keyword === 'pattern' ? 'has not the form that the provider wants' : error;
}

export const validator: ValidatorType = {
  isValid: (schema, data, root) => judge(schema, data, root).valid,
  // The library hands what this gives to itself.
  rawValidation: ((schema: RJSFSchema, data: unknown) => ({ errors: errorsOf(schema, data) })) as ValidatorType['rawValidation'],
  validateFormData(data: unknown, schema: RJSFSchema): ValidationData<unknown> {
    const errors = errorsOf(schema, data);
    return { errors, errorSchema: toErrorSchema(errors) };
  },
  reset: () => undefined,
};
