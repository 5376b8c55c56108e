import type { Client } from '@urql/core';
import { useCallback, useEffect, useRef, useState } from 'react';
import { useClient } from 'urql';
import { graphql } from './gql';
import type { OfferQuery, OffersQuery } from './gql/graphql';
import { problemOf, type Problem } from './problem';

export const OffersDocument = graphql(`
  query Offers($tenant: ID!, $account: ID!, $query: OfferQuery) {
    offers(tenantId: $tenant, accountId: $account, query: $query) {
      id
      kind
      region
      name
      arch
      vcpu
      memoryGiB
      disks {
        sizeGB
        count
        media
      }
      gpu {
        model
        count
        memoryGiB
      }
      price {
        hourly
        monthly
        setup
        currency
        taxIncluded
      }
      availability
      observedAt
    }
  }
`);

export type Offer = NonNullable<OffersQuery['offers']>[number];

export interface Account {
  id: string;
  name: string;
}

export interface OfferRow {
  account: Account;
  offer: Offer;
}

export interface OfferAnswer {
  rows: OfferRow[];
  failures: { account: Account; problem: Problem }[];
  /** How many accounts have not answered yet. */
  waiting: number;
}

/** How many providers are asked at a time. */
const atOnce = 6;

async function ask(client: Client, tenant: string, account: Account, query: OfferQuery) {
  const result = await client.query(OffersDocument, { tenant, account: account.id, query }, { requestPolicy: 'network-only' }).toPromise();
  if (result.error) return { account, offers: [], problem: problemOf(result.error) };
  return { account, offers: result.data?.offers ?? [], problem: null };
}

/** The offers of several accounts, asked live. One that fails leaves the others standing. */
export function useOffers(tenant: string, accounts: Account[], query: OfferQuery): OfferAnswer & { reload: () => void } {
  const client = useClient();
  const [answer, setAnswer] = useState<OfferAnswer & { to: string }>({ rows: [], failures: [], waiting: accounts.length, to: '' });
  const [round, setRound] = useState(0);
  const wanted = JSON.stringify([tenant, accounts, query, round]);
  const newest = useRef(wanted);

  useEffect(() => {
    newest.current = wanted;
    const [, all, filter] = JSON.parse(wanted) as [string, Account[], OfferQuery];
    const queue = [...all];
    const collected: OfferAnswer = { rows: [], failures: [], waiting: all.length };
    const publish = () => {
      if (newest.current === wanted)
        setAnswer({ rows: [...collected.rows], failures: [...collected.failures], waiting: collected.waiting, to: wanted });
    };
    const work = async () => {
      for (let account = queue.shift(); account && newest.current === wanted; account = queue.shift()) {
        const { offers, problem, account: asked } = await ask(client, tenant, account, filter);
        if (problem) collected.failures.push({ account: asked, problem });
        for (const offer of offers) collected.rows.push({ account: asked, offer });
        collected.waiting--;
        publish();
      }
    };
    void Promise.all(Array.from({ length: Math.min(atOnce, all.length) }, work)).then(publish);
    return () => {
      newest.current = '';
    };
  }, [client, tenant, wanted]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  // Until the first account has answered, what was asked for before stands.
  const waiting = answer.to === wanted ? answer.waiting : accounts.length;
  return { rows: answer.rows, failures: answer.failures, waiting, reload };
}

export function memoryText(gib: number | null | undefined): string {
  return gib == null ? '–' : `${Number(gib.toFixed(1))} GiB`;
}

export function disksText(offer: Offer): string {
  return (
    offer.disks
      .map((disk) => `${disk.count > 1 ? `${disk.count} × ` : ''}${disk.sizeGB} GB ${disk.media === 'unknown' ? '' : disk.media}`.trim())
      .join(', ') || '–'
  );
}

export function gpuText(offer: Offer): string {
  if (!offer.gpu) return '–';
  return `${offer.gpu.count > 1 ? `${offer.gpu.count} × ` : ''}${offer.gpu.model}`;
}

interface PriceLike {
  hourly?: string | null;
  monthly?: string | null;
  setup?: string | null;
  currency: string;
  taxIncluded: boolean;
}

/** A price as the provider states it; nothing is converted. */
export function priceText(price: PriceLike | null | undefined): string {
  if (!price) return 'Not told';
  const parts = [];
  if (price.hourly) parts.push(`${price.hourly} an hour`);
  if (price.monthly) parts.push(`${price.monthly} a month`);
  if (price.setup && Number(price.setup) > 0) parts.push(`${price.setup} once`);
  return `${price.currency} ${parts.join(', ') || '–'}${price.taxIncluded ? ' with tax' : ''}`;
}
