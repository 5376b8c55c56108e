import type { CombinedError } from '@urql/core';

export interface Issue {
  path: string;
  message: string;
}

/** What is in the way of a deletion. */
export interface Blocker {
  text: string;
  /** Its page within the tenant; empty when it has none. */
  path: string;
}

/** An error of the API, or of the way to it. */
export interface Problem {
  code: string;
  message: string;
  issues: Issue[];
  blockers: Blocker[];
  details: Record<string, unknown>;
  requestId: string;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function blockerOf(value: Record<string, unknown>): Blocker {
  const [type, name, id] = [text(value.type), text(value.name), text(value.id)];
  return { text: [type, name, id].filter((part) => part !== '').join(' '), path: pathOf(type, id) };
}

function pathOf(type: string, id: string): string {
  switch (type) {
    case 'bootstrap':
      return `/bootstraps/${encodeURIComponent(id)}`;
    case 'pool':
      return `/pools/${encodeURIComponent(id)}`;
    case 'orphan':
      return '/orphans';
    default:
      return '';
  }
}

interface ErrorLike {
  message: string;
  extensions?: Record<string, unknown>;
}

export function problemOfError(error: ErrorLike): Problem {
  const extensions = error.extensions ?? {};
  const details = isRecord(extensions.details) ? extensions.details : {};
  return {
    code: text(extensions.code) || 'INTERNAL',
    message: error.message,
    issues: list(details.issues)
      .filter(isRecord)
      .map((issue) => ({ path: text(issue.path), message: text(issue.message) })),
    blockers: list(details.blockers).filter(isRecord).map(blockerOf),
    details,
    requestId: text(extensions.requestId) || text(details.requestId),
  };
}

export function problemOf(error: CombinedError): Problem {
  const [first] = error.graphQLErrors;
  if (first) return problemOfError(first);
  return {
    code: 'UNREACHABLE',
    message: 'The server cannot be reached. What you see may be out of date.',
    issues: [],
    blockers: [],
    details: {},
    requestId: '',
  };
}

/** What who may not use a page is told in place of it. */
export function forbidden(needs: string): Problem {
  return { code: 'FORBIDDEN', message: `It takes the right to ${needs}.`, issues: [], blockers: [], details: {}, requestId: '' };
}

/** What to do about an error, where there is something to say. */
export function advice(problem: Problem): string {
  switch (problem.code) {
    case 'FORBIDDEN':
      return 'Ask an administrator of the tenant for a role that allows it.';
    case 'NOT_FOUND':
      return 'It may belong to another tenant, or be gone.';
    case 'UNAVAILABLE':
    case 'UNREACHABLE':
      return 'Try again in a moment.';
    case 'CONFLICT':
      return problem.details.version === undefined ? '' : 'Somebody else changed it meanwhile: load the page again to see how it stands.';
    case 'RATE_LIMITED':
      return typeof problem.details.retryAfterSeconds === 'number'
        ? `Try again in ${problem.details.retryAfterSeconds} seconds.`
        : 'Try again later.';
    case 'INTERNAL':
      return problem.requestId ? `Tell the operator the request id ${problem.requestId}.` : '';
    case 'PROVIDER_ERROR':
      return providerAdvice(text(problem.details.reason));
    default:
      return '';
  }
}

function providerAdvice(reason: string): string {
  switch (reason) {
    case 'credentials':
      return 'Write a valid secret, or name another one in the account, then check the account.';
    case 'secret_unresolved':
      return 'Write the secret that the account refers to.';
    case 'quota':
      return 'Ask the provider to raise the limit, or give machines back.';
    case 'payment':
      return 'Settle it with the provider.';
    default:
      return '';
  }
}
