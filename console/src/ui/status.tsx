import type { Availability, BootstrapStatus, CleanupStatus } from '../gql/graphql';
import { Mark } from '.';

/** A word of the API for people: CLAIM_UNCERTAIN becomes "claim uncertain". */
export function words(value: string): string {
  return value.toLowerCase().replaceAll('_', ' ');
}

export function sentence(value: string): string {
  const text = words(value);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function isFinal(status: BootstrapStatus): boolean {
  return status === 'JOINED' || status === 'FAILED';
}

export function BootstrapMark({ status, waitReason }: { status: BootstrapStatus; waitReason?: string | null }) {
  if (status === 'FAILED' && waitReason === 'CLAIM_UNCERTAIN') return <Mark color="red">Failed, needs you</Mark>;
  if (status === 'JOINED') return <Mark color="green">Joined</Mark>;
  if (status === 'FAILED') return <Mark color="red">Failed</Mark>;
  if (waitReason === 'CLAIM_UNCERTAIN') return <Mark color="yellow">Needs you</Mark>;
  return <Mark color="blue">{sentence(status)}</Mark>;
}

const cleanups: Record<CleanupStatus, string> = {
  NONE: 'Nothing to clean up',
  PENDING: 'The machine is kept for a while, to be tried again or looked at; then it is cleaned up',
  RELEASING: 'The machine is being given back',
  RELEASED: 'The machine was given back',
  KEPT: 'The machine was left as it is',
  BLOCKED: 'Cleaning up needs a person',
};

export function cleanupText(cleanup: CleanupStatus): string {
  return cleanups[cleanup];
}

const availabilities: Record<Availability, [string, string]> = {
  AVAILABLE: ['green', 'Available'],
  LIMITED: ['yellow', 'Few left'],
  OUT_OF_STOCK: ['red', 'Out of stock'],
  UNKNOWN: ['gray', 'Not told'],
};

export function AvailabilityMark({ availability }: { availability: Availability }) {
  const [color, label] = availabilities[availability];
  return <Mark color={color}>{label}</Mark>;
}
