import type { AnyVariables, OperationResult } from '@urql/core';
import { problemOf, type Problem } from './problem';

/** What went wrong with a mutation; null when it is done. */
export function failureOf<Data, Variables extends AnyVariables>(result: OperationResult<Data, Variables>): Problem | null {
  return result.error ? problemOf(result.error) : null;
}
