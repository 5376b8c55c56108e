package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints medians over the rounds; the ratio is taken within each round first, since the machine drifts between them.
func report(out io.Writer, s settings, cells []cell) error {
	_, err := fmt.Fprintf(out, "%d tenants x %d accounts, %d connections, %d rounds of %s; medians\n\n", s.tenants, perTenant, s.conns, s.rounds, s.cell)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "operation\ttarget\treq/s\tp50 ms\tp99 ms\tCPU s/1,000\tRSS MiB\tserver / bare")
	for _, op := range operations() {
		for _, target := range []string{"server", "bare"} {
			mine := slices.DeleteFunc(slices.Clone(cells), func(c cell) bool { return c.op != op.name || c.target != target })
			ratio := ""
			if target == "server" {
				ratio = fmt.Sprintf("%.2f", median(ratios(cells, op.name)))
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t%.3f\t%.0f\t%s\n", op.name, target,
				median(each(mine, func(c cell) float64 { return c.perSecond })),
				median(each(mine, func(c cell) float64 { return milliseconds(c.p50) })),
				median(each(mine, func(c cell) float64 { return milliseconds(c.p99) })),
				median(each(mine, func(c cell) float64 { return c.cpu.Seconds() })),
				median(each(mine, func(c cell) float64 { return c.rssMiB })), ratio)
		}
	}
	return w.Flush()
}

func ratios(cells []cell, op string) []float64 {
	byRound := map[int]map[string]float64{}
	for _, c := range cells {
		if c.op != op {
			continue
		}
		if byRound[c.round] == nil {
			byRound[c.round] = map[string]float64{}
		}
		byRound[c.round][c.target] = c.perSecond
	}
	var all []float64
	for _, r := range byRound {
		all = append(all, r["server"]/r["bare"])
	}
	return all
}

func each(cells []cell, value func(cell) float64) []float64 {
	values := make([]float64, len(cells))
	for i, c := range cells {
		values[i] = value(c)
	}
	return values
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
