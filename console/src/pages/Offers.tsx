import {
  ActionIcon,
  Button,
  Checkbox,
  Group,
  Modal,
  MultiSelect,
  NumberInput,
  Select,
  Skeleton,
  Stack,
  Switch,
  Text,
  TextInput,
  Tooltip,
} from '@mantine/core';
import { useDebouncedValue, useMediaQuery } from '@mantine/hooks';
import { IconArrowDown, IconArrowUp, IconFilterOff, IconPlugConnected, IconRefresh, IconTag } from '@tabler/icons-react';
import {
  createColumnHelper,
  flexRender,
  functionalUpdate,
  getCoreRowModel,
  getSortedRowModel,
  useReactTable,
  type ColumnSort,
} from '@tanstack/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { lazy, Suspense, useMemo, useRef, useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { graphql } from '../gql';
import type { OfferAccountsQuery, OfferQuery } from '../gql/graphql';
import { disksText, gpuText, memoryText, priceText, useOffers, type Account, type OfferAnswer, type OfferRow } from '../offers';
import { advice, problemOf, type Problem } from '../problem';
import { useMay } from '../rights';
import { usePath, useWorkplace } from '../tenant';
import { Age, Empty, Facts, LinkTo, Loading, Notice, Page, ProblemAlert, When } from '../ui';
import { AvailabilityMark } from '../ui/status';
import { useWhole } from '../whole';

const Plot = lazy(() => import('./OffersPlot'));

const OfferAccounts = graphql(`
  query OfferAccounts($tenant: ID!, $after: String) {
    providerAccounts(tenantId: $tenant, first: 100, after: $after) {
      nodes {
        id
        name
        provider {
          name
          capabilities {
            offers
          }
        }
      }
      pageInfo {
        hasNextPage
        endCursor
      }
    }
  }
`);

const accountsOf = (data: OfferAccountsQuery) => data.providerAccounts;

export default function Offers() {
  const { tenant, permissions } = useWorkplace();
  const path = usePath();
  const { nodes, error, again } = useWhole(OfferAccounts, { tenant }, accountsOf);
  const accounts = useMemo(
    () => (nodes ?? []).filter((a) => a.provider.capabilities.offers).map(({ id, name }) => ({ id, name })),
    [nodes],
  );
  const about = 'What the providers sell now, asked live.';
  if (!nodes) {
    return (
      <Page title="Offers" about={about}>
        {error ? <ProblemAlert problem={problemOf(error)} retry={again} /> : <Loading />}
      </Page>
    );
  }
  if (accounts.length === 0) {
    const connect = permissions.has('PROVIDERS_MANAGE') && (
      <Button component={Link} to={path('/accounts/new')}>
        Connect an account
      </Button>
    );
    return (
      <Page title="Offers" about={about}>
        <Empty icon={IconPlugConnected} title="No account that lists offers" action={connect}>
          Offers come from the accounts of the tenant.
        </Empty>
      </Page>
    );
  }
  return <Finder tenant={tenant} accounts={accounts} about={about} />;
}

const numbers = ['minVcpu', 'minMemoryGiB', 'minGpus'] as const;

/** The most that may be asked for, as in the schema's OfferQuery. */
const most: Record<(typeof numbers)[number], number> = { minVcpu: 1024, minMemoryGiB: 16384, minGpus: 64 };

/** A name as people write it, in the letters that the server takes. It compares without case, spaces and the like. */
function folded(name: string | null): string {
  return (name ?? '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, ' ')
    .trim()
    .replaceAll(' ', '-');
}

function queryOf(params: URLSearchParams): OfferQuery {
  const query: OfferQuery = {};
  const kind = params.get('kind');
  if (kind === 'VPS' || kind === 'METAL') query.kind = kind;
  const region = folded(params.get('region'));
  if (region) query.region = region;
  const gpuModel = folded(params.get('gpuModel'));
  if (gpuModel) query.gpuModel = gpuModel;
  for (const name of numbers) {
    const value = Number(params.get(name));
    if (Number.isInteger(value) && value > 0 && value <= most[name]) query[name] = value;
  }
  return query;
}

function Finder({ tenant, accounts, about }: { tenant: string; accounts: Account[]; about: string }) {
  const [params, setParams] = useSearchParams();
  const [settled] = useDebouncedValue(params.toString(), 300);
  const query = useMemo(() => queryOf(new URLSearchParams(settled)), [settled]);
  const asked = params.getAll('account');
  const named = asked.filter((id) => accounts.some((a) => a.id === id));
  const unknown = asked.filter((id) => !named.includes(id));
  const chosen = asked.length > 0 ? accounts.filter((a) => asked.includes(a.id)) : accounts;
  const answer = useOffers(tenant, chosen, query);
  const [opened, setOpened] = useState<OfferRow | null>(null);
  const available = params.has('stock');
  const said = params.get('sort');
  const sort = useMemo(() => sortOf(said), [said]);
  const [plotted, setPlotted] = useState(true);
  const rows = useMemo(
    () =>
      available ? answer.rows.filter(({ offer }) => offer.availability === 'AVAILABLE' || offer.availability === 'LIMITED') : answer.rows,
    [answer.rows, available],
  );

  const set = (name: string, value: string) =>
    setParams(
      (old) => {
        if (value === '') old.delete(name);
        else old.set(name, value);
        return old;
      },
      { replace: true },
    );
  const number = (name: (typeof numbers)[number], label: string) => (
    <NumberInput
      label={label}
      value={params.get(name) ?? ''}
      onChange={(value) => set(name, value === 0 ? '' : String(value))}
      min={0}
      max={most[name]}
      error={Number(params.get(name)) > most[name] ? `Up to ${most[name]}` : undefined}
      allowDecimal={false}
      allowNegative={false}
      hideControls
    />
  );
  const filtered = Object.keys(query).length > 0 || asked.length > 0 || available;

  return (
    <Page
      title="Offers"
      about={about}
      actions={
        <Button variant="default" leftSection={<IconRefresh size={16} />} onClick={answer.reload} loading={answer.waiting > 0}>
          Reload
        </Button>
      }
    >
      <div className="surface filters many">
        {accounts.length > 1 && (
          <MultiSelect
            label="Accounts"
            placeholder={asked.length === 0 ? 'All' : undefined}
            data={accounts.map((a) => ({ value: a.id, label: a.name }))}
            value={named}
            onChange={(ids) =>
              setParams(
                (old) => {
                  old.delete('account');
                  ids.forEach((id) => old.append('account', id));
                  return old;
                },
                { replace: true },
              )
            }
            style={{ gridColumn: 'span 2' }}
            clearable
            clearButtonProps={{ 'aria-label': 'Show all accounts' }}
          />
        )}
        <Select
          label="Kind"
          data={[
            { value: '', label: 'Any' },
            { value: 'VPS', label: 'Virtual' },
            { value: 'METAL', label: 'Dedicated' },
          ]}
          value={query.kind ?? ''}
          onChange={(value) => set('kind', value ?? '')}
          allowDeselect={false}
        />
        <TextInput
          label="Region"
          value={params.get('region') ?? ''}
          onChange={(e) => set('region', e.currentTarget.value)}
          maxLength={63}
        />
        {number('minVcpu', 'Min. vCPU')}
        {number('minMemoryGiB', 'Min. GiB')}
        <TextInput
          label="GPU model"
          value={params.get('gpuModel') ?? ''}
          onChange={(e) => set('gpuModel', e.currentTarget.value)}
          maxLength={32}
        />
        {number('minGpus', 'Min. GPUs')}
        <Checkbox
          label="In stock only"
          checked={available}
          onChange={(e) => set('stock', e.currentTarget.checked ? 'yes' : '')}
          pb={8}
          style={{ gridColumn: 'span 2' }}
        />
        {filtered && (
          <Tooltip label="Drop all filters">
            <ActionIcon
              variant="default"
              size={36}
              aria-label="Drop all filters"
              onClick={() => setParams((old) => onlySort(old), { replace: true })}
            >
              <IconFilterOff size={18} />
            </ActionIcon>
          </Tooltip>
        )}
      </div>
      {unknown.length > 0 && (
        <ProblemAlert problem={noSuchAccount(unknown)} title={unknown.length === 1 ? 'An account is not here' : 'Accounts are not here'} />
      )}
      <Failures answer={answer} />
      <Group justify="space-between" mih={24}>
        <Text size="sm" c="dimmed" role="status">
          {summary(answer, rows, sort.id)}
        </Text>
        <Switch label="Price plot" checked={plotted} onChange={(e) => setPlotted(e.currentTarget.checked)} />
      </Group>
      {plotted && rows.length > 0 && (
        <Suspense fallback={<Skeleton height={372} radius="md" />}>
          <Plot rows={rows} onOpen={setOpened} />
        </Suspense>
      )}
      {rows.length > 0 && (
        <OfferTable
          rows={rows}
          several={chosen.length > 1}
          sort={sort}
          onSort={({ id, desc }) => set('sort', desc ? `-${id}` : id === cheapest ? '' : id)}
          onOpen={setOpened}
        />
      )}
      {rows.length === 0 && answer.waiting > 0 && <Loading rows={6} />}
      {rows.length === 0 && answer.waiting === 0 && answer.failures.length < chosen.length && (
        <Empty icon={IconTag} title="No offer meets all of that">
          {filtered ? 'Drop a filter, or ask for less.' : 'The providers sell nothing to these accounts now.'}
        </Empty>
      )}
      <Modal opened={opened !== null} onClose={() => setOpened(null)} title={opened?.offer.name} centered size="lg">
        {opened && <OfferDetails row={opened} />}
      </Modal>
    </Page>
  );
}

function noSuchAccount(ids: string[]): Problem {
  return {
    code: 'NOT_FOUND',
    message: `No account that you may read and that lists offers is ${ids.join(' or ')}.`,
    issues: [],
    blockers: [],
    details: {},
    requestId: '',
  };
}

function summary(answer: OfferAnswer, rows: OfferRow[], sort: string) {
  if (answer.waiting > 0) return answer.waiting === 1 ? 'Asking the provider…' : `Waiting for ${answer.waiting} accounts…`;
  const oldest = rows.reduce<string | null>((at, { offer }) => (at === null || offer.observedAt < at ? offer.observedAt : at), null);
  const currencies = prices.has(sort) ? currenciesOf(rows) : [];
  return (
    <>
      {rows.length === 1 ? '1 offer' : `${rows.length.toLocaleString()} offers`}
      {oldest !== null && (
        <>
          , as the providers told <Age at={oldest} />
        </>
      )}
      {currencies.length > 1 && `. Prices are not converted: first those in ${currencies.join(', then ')}.`}
    </>
  );
}

function Failures({ answer }: { answer: OfferAnswer }) {
  const path = usePath();
  if (answer.failures.length === 0) return null;
  return (
    <Notice
      role="alert"
      color="red"
      title={answer.failures.length === 1 ? 'One account gave no offers' : `${answer.failures.length} accounts gave no offers`}
    >
      <ul style={{ margin: 0, paddingLeft: '1.2rem' }}>
        {answer.failures.map(({ account, problem }) => (
          <li key={account.id}>
            <LinkTo to={path(`/accounts/${account.id}`)}>{account.name}</LinkTo>: {problem.message} {advice(problem)}
          </li>
        ))}
      </ul>
    </Notice>
  );
}

const column = createColumnHelper<OfferRow>();
const hourly = (row: OfferRow) => (row.offer.price?.hourly ? Number(row.offer.price.hourly) : undefined);
const monthly = (row: OfferRow) => (row.offer.price?.monthly ? Number(row.offer.price.monthly) : undefined);

const prices = new Set(['hourly', 'monthly']);
const cheapest = 'hourly';

function currenciesOf(rows: OfferRow[]): string[] {
  return [...new Set(rows.flatMap(({ offer }) => (offer.price ? [offer.price.currency] : [])))].sort();
}

/** What the address says of the order: a column, with a minus the other way round. */
function sortOf(said: string | null): ColumnSort {
  const id = said?.replace(/^-/, '') ?? '';
  return columns.some((c) => c.id === id) ? { id, desc: said?.startsWith('-') ?? false } : { id: cheapest, desc: false };
}

function onlySort(params: URLSearchParams): URLSearchParams {
  const sort = params.get('sort');
  return new URLSearchParams(sort === null ? {} : { sort });
}

const columns = [
  column.accessor((row) => row.offer.name, { id: 'name', header: 'Machine type', sortingFn: 'alphanumeric' }),
  column.accessor((row) => row.account.name, { id: 'account', header: 'Account' }),
  column.accessor((row) => row.offer.region, { id: 'region', header: 'Region' }),
  column.accessor((row) => row.offer.vcpu ?? undefined, {
    id: 'vcpu',
    header: 'vCPU',
    cell: (c) => c.getValue() ?? '–',
    sortUndefined: 'last',
  }),
  column.accessor((row) => row.offer.memoryGiB ?? undefined, {
    id: 'memory',
    header: 'Memory',
    cell: (c) => memoryText(c.getValue()),
    sortUndefined: 'last',
  }),
  column.accessor((row) => row.offer.gpu?.count, {
    id: 'gpu',
    header: 'GPU',
    cell: (c) => gpuText(c.row.original.offer),
    sortUndefined: 'last',
  }),
  column.accessor(hourly, { id: 'hourly', header: 'Hour', cell: (c) => money(c.row.original, 'hourly'), sortUndefined: 'last' }),
  column.accessor(monthly, { id: 'monthly', header: 'Month', cell: (c) => money(c.row.original, 'monthly'), sortUndefined: 'last' }),
  // Never shown: amounts are compared within a currency only.
  column.accessor((row) => row.offer.price?.currency, { id: 'currency', sortUndefined: 'last' }),
  column.accessor((row) => row.offer.availability, {
    id: 'availability',
    header: 'Stock',
    cell: (c) => <AvailabilityMark availability={c.getValue()} />,
  }),
];

const right = new Set(['vcpu', 'memory', ...prices]);

/** What is left out where there is no room. An offer tells all of it when it is opened. */
const small = { region: false, vcpu: false, gpu: false, monthly: false };

function money({ offer }: OfferRow, per: 'hourly' | 'monthly'): string {
  const amount = offer.price?.[per];
  return amount ? `${amount} ${offer.price?.currency ?? ''}` : '–';
}

interface OfferTableProps {
  rows: OfferRow[];
  several: boolean;
  sort: ColumnSort;
  onSort: (sort: ColumnSort) => void;
  onOpen: (row: OfferRow) => void;
}

function OfferTable({ rows, several, sort, onSort, onOpen }: OfferTableProps) {
  const sorting = useMemo(() => (prices.has(sort.id) ? [{ id: 'currency', desc: false }, sort] : [sort]), [sort]);
  const narrow = useMediaQuery('(max-width: 48em)');
  const table = useReactTable({
    data: rows,
    columns,
    state: { sorting, columnVisibility: { ...(narrow ? small : {}), account: several && !narrow, currency: false } },
    enableSortingRemoval: false,
    onSortingChange: (updater) => {
      const chosen = functionalUpdate(updater, sorting).at(-1);
      if (chosen) onSort(chosen);
    },
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
  });
  const sorted = table.getRowModel().rows;
  const frame = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => frame.current,
    estimateSize: () => 44,
    overscan: 12,
    scrollMargin: 0,
  });
  const template = narrow
    ? 'minmax(0, 1fr) 3.4rem 5rem 6rem'
    : table
        .getVisibleLeafColumns()
        .map(({ id }) => (id === 'name' ? 'minmax(8rem, 2fr)' : right.has(id) ? 'minmax(5.5rem, 1fr)' : 'minmax(6rem, 1.2fr)'))
        .join(' ');
  const height = Math.min(sorted.length * 44 + 46, 700);
  return (
    // The rows that are not in sight are not in the document, so the whole is told by the counts.
    <div
      ref={frame}
      className="surface rows"
      style={{ height }}
      role="table"
      aria-label="Offers"
      aria-rowcount={sorted.length + 1}
      tabIndex={0}
    >
      <div role="rowgroup">
        {table.getHeaderGroups().map((group) => (
          <div key={group.id} className="grid-row grid-head" role="row" style={{ gridTemplateColumns: template }}>
            {group.headers.map(({ id, column: c }) => {
              const order = c.getIsSorted();
              const Arrow = order === 'desc' ? IconArrowDown : IconArrowUp;
              return (
                <div
                  key={id}
                  role="columnheader"
                  aria-sort={order === false ? 'none' : order === 'asc' ? 'ascending' : 'descending'}
                  className={right.has(id) ? 'number' : undefined}
                >
                  <button type="button" className="sort" onClick={c.getToggleSortingHandler()}>
                    {String(c.columnDef.header)}
                    {order !== false && <Arrow size={13} style={{ marginLeft: 4, verticalAlign: -1 }} aria-hidden />}
                  </button>
                </div>
              );
            })}
          </div>
        ))}
      </div>
      <div role="rowgroup" style={{ position: 'relative', height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = sorted[item.index];
          if (!row) return null;
          return (
            <div
              key={row.id}
              role="row"
              aria-rowindex={item.index + 2}
              className="grid-row grid-line"
              style={{
                gridTemplateColumns: template,
                position: 'absolute',
                insetInline: 0,
                height: item.size,
                transform: `translateY(${item.start}px)`,
              }}
            >
              {row.getVisibleCells().map((cell) => (
                <div
                  key={cell.id}
                  role="cell"
                  className={right.has(cell.column.id) ? 'number' : undefined}
                  title={cell.column.id === 'account' ? row.original.account.name : undefined}
                >
                  {cell.column.id === 'name' ? (
                    <>
                      <button type="button" className="sort link" onClick={() => onOpen(row.original)}>
                        {row.original.offer.name}
                      </button>
                      {narrow && (
                        <div className="under">
                          {[row.original.offer.region, several && row.original.account.name].filter(Boolean).join(', ')}
                        </div>
                      )}
                    </>
                  ) : (
                    flexRender(cell.column.columnDef.cell, cell.getContext())
                  )}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function OfferDetails({ row: { account, offer } }: { row: OfferRow }) {
  const path = usePath();
  const manages = useMay('PROVIDERS_MANAGE', account.id);
  return (
    <Stack>
      <Facts
        items={[
          ['Price', priceText(offer.price)],
          ['Stock', <AvailabilityMark key="stock" availability={offer.availability} />],
          ['Account', account.name],
          ['Kind', offer.kind === 'METAL' ? 'Dedicated server' : 'Virtual server'],
          ['Region', offer.region],
          ['vCPU', `${offer.vcpu ?? '–'}${offer.arch ? ` (${offer.arch})` : ''}`],
          ['Memory', memoryText(offer.memoryGiB)],
          ['Disks', disksText(offer)],
          ['GPU', gpuText(offer)],
          ['Told', <When key="told" at={offer.observedAt} />],
        ]}
      />
      {manages && (
        <Group justify="flex-end">
          <Button component={Link} to={`${path('/bootstraps/new')}?account=${account.id}&offer=${encodeURIComponent(offer.id)}`}>
            Bootstrap one
          </Button>
        </Group>
      )}
    </Stack>
  );
}
