import { Group, SegmentedControl, Select, Stack, Text } from '@mantine/core';
import { useMemo, useState } from 'react';
import { CartesianGrid, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from 'recharts';
import { gpuText, memoryText, priceText, type OfferRow } from '../offers';

interface Point {
  x: number;
  y: number;
  row: OfferRow;
}

/** More would be a cloud that nobody can hit. */
const most = 600;

type Axis = 'memory' | 'gpu';

function pointsOf(rows: OfferRow[], axis: Axis, currency: string): Point[] {
  const points: Point[] = [];
  for (const row of rows) {
    const { price, memoryGiB, gpu } = row.offer;
    const x = axis === 'memory' ? memoryGiB : gpu?.count;
    if (x == null || !price?.hourly || price.currency !== currency) continue;
    points.push({ x, y: Number(price.hourly), row });
  }
  return points.sort((a, b) => a.y - b.y).slice(0, most);
}

/** Powers of two, as memory comes in them, and the end; so few that their labels have room. */
function ticksOf(points: Point[]): number[] {
  const end = Math.max(1, ...points.map(({ x }) => x));
  const steps: number[] = [];
  for (let step = end; step >= 1 && steps.length < 6; step /= 4) steps.unshift(step);
  return [0, ...steps.map((step) => 2 ** Math.floor(Math.log2(step))).filter((step) => step >= end / 300 && step <= end)];
}

export default function OffersPlot({ rows, onOpen }: { rows: OfferRow[]; onOpen: (row: OfferRow) => void }) {
  const [axis, setAxis] = useState<Axis>('memory');
  const currencies = useMemo(
    () => [...new Set(rows.flatMap(({ offer }) => (offer.price?.hourly ? [offer.price.currency] : [])))].sort(),
    [rows],
  );
  const [wanted, setWanted] = useState<string | null>(null);
  const currency = wanted !== null && currencies.includes(wanted) ? wanted : (currencies[0] ?? '');
  const points = useMemo(() => pointsOf(rows, axis, currency), [rows, axis, currency]);
  const ticks = useMemo(() => ticksOf(points), [points]);
  const text = { fill: 'var(--mantine-color-dimmed)', fontSize: 12 };
  return (
    <Stack className="surface" p="md" gap="sm" component="figure" m={0}>
      <Group justify="space-between">
        <Text size="sm" fw={600} component="figcaption">
          Hourly price in {currency || 'no currency'}
          {points.length === most && ` of the cheapest ${most}`}. A point opens its offer.
        </Text>
        <Group gap="xs">
          {currencies.length > 1 && (
            <Select size="xs" w={90} aria-label="Currency" data={currencies} value={currency} onChange={setWanted} allowDeselect={false} />
          )}
          <SegmentedControl
            size="xs"
            aria-label="What the price is plotted against"
            value={axis}
            onChange={setAxis}
            data={[
              { value: 'memory', label: 'Memory' },
              { value: 'gpu', label: 'GPUs' },
            ]}
          />
        </Group>
      </Group>
      <div className="plot" data-testid="plot">
        {points.length === 0 ? (
          <Text c="dimmed" size="sm" ta="center" pt={120}>
            None of these offers tells an hourly price and {axis === 'memory' ? 'its memory' : 'GPUs'}.
          </Text>
        ) : (
          <ResponsiveContainer width="100%" height="100%">
            <ScatterChart margin={{ top: 8, right: 16, bottom: 20, left: 0 }} accessibilityLayer={false}>
              <CartesianGrid stroke="var(--mantine-color-default-border)" vertical={false} horizontal={false} />
              <XAxis
                type="number"
                dataKey="x"
                scale="sqrt"
                ticks={ticks}
                interval={0}
                domain={[0, 'dataMax']}
                tick={text}
                label={{ value: axis === 'memory' ? 'Memory, GiB' : 'GPUs', position: 'insideBottom', offset: -12, ...text }}
              />
              <YAxis
                type="number"
                dataKey="y"
                scale="sqrt"
                domain={[0, 'dataMax']}
                interval="preserveStart"
                minTickGap={20}
                tick={text}
                width={64}
              />
              <Tooltip
                cursor={false}
                isAnimationActive={false}
                content={({ payload }) => <PointText point={payload[0]?.payload as Point | undefined} />}
              />
              <Scatter
                data={points}
                isAnimationActive={false}
                fill="var(--mantine-color-anchor)"
                fillOpacity={0.75}
                cursor="pointer"
                onClick={(point: unknown) => {
                  const { row } = (point as { payload?: Point }).payload ?? {};
                  if (row) onOpen(row);
                }}
              />
            </ScatterChart>
          </ResponsiveContainer>
        )}
      </div>
    </Stack>
  );
}

function PointText({ point }: { point: Point | undefined }) {
  if (!point) return null;
  const { offer, account } = point.row;
  return (
    <Stack className="surface" gap={0} p="xs">
      <Text size="sm" fw={600}>
        {offer.name}
      </Text>
      <Text size="xs">
        {memoryText(offer.memoryGiB)}
        {offer.gpu ? `, ${gpuText(offer)}` : ''}, {priceText(offer.price)}
      </Text>
      <Text size="xs" c="dimmed">
        {account.name}, {offer.region}
      </Text>
    </Stack>
  );
}
