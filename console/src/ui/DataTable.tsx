import { ScrollArea, Table } from '@mantine/core';
import type { ReactNode } from 'react';

export interface Column<Row> {
  /** Empty for what can be done with a row, which says itself what it is. */
  title: string;
  cell: (row: Row) => ReactNode;
  /** The whole of what may be cut off. */
  whole?: (row: Row) => string | undefined;
  className?: string;
}

interface DataTableProps<Row> {
  label: string;
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** In order; false is one that this reader has no use for. */
  columns: (Column<Row> | false)[];
}

/** A list of things. On a phone each is a block with a line for each column, and the roles say that it is still a table. */
export function DataTable<Row>({ label, rows, keyOf, columns }: DataTableProps<Row>) {
  const shown = columns.filter((column) => column !== false);
  return (
    <ScrollArea className="surface" type="auto" viewportProps={{ tabIndex: 0, role: 'region', 'aria-label': label }}>
      <Table className="stacks" role="table" verticalSpacing="sm" horizontalSpacing="md" highlightOnHover>
        <Table.Thead role="rowgroup">
          <Table.Tr role="row">
            {shown.map(({ title }) => (
              <Table.Th key={title} role="columnheader" aria-label={title === '' ? 'Actions' : undefined}>
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody role="rowgroup">
          {rows.map((row) => (
            <Table.Tr key={keyOf(row)} role="row">
              {shown.map(({ title, cell, whole, className }) => (
                <Table.Td key={title} role="cell" data-label={title}>
                  <div className={title === '' ? 'act' : className} title={whole?.(row)}>
                    {cell(row)}
                  </div>
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </ScrollArea>
  );
}
