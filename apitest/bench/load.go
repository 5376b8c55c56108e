package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const accountSelection = `{ id tenantId name config version createdAt updatedAt provider { name } }`

// operation is one kind of request, for both targets.
type operation struct {
	name  string
	query string
	// draw picks what one request is about.
	draw func(r *rand.Rand) (p params, variables map[string]any)
}

func operations() []operation {
	hot := hotTenants()
	list := func(first int, tenant func(*rand.Rand) string) func(*rand.Rand) (params, map[string]any) {
		return func(r *rand.Rand) (params, map[string]any) {
			t := tenant(r)
			return params{Tenant: t, First: first}, map[string]any{"t": t, "n": first}
		}
	}
	anyHot := func(r *rand.Rand) string { return hot[r.IntN(len(hot))] }
	big := func(*rand.Rand) string { return bigTenant }
	const page = `query($t: ID!, $n: Int!) { providerAccounts(tenantId: $t, first: $n) { nodes ` + accountSelection + ` pageInfo { hasNextPage } } }`
	var created atomic.Int64
	run := time.Now().UnixNano()
	return []operation{
		{
			"get", `query($t: ID!, $a: ID!) { providerAccount(tenantId: $t, accountId: $a) ` + accountSelection + ` }`,
			func(r *rand.Rand) (params, map[string]any) {
				i := r.IntN(len(hot))
				a := accountID(i, r.IntN(perTenant))
				return params{Tenant: hot[i], Account: a}, map[string]any{"t": hot[i], "a": a}
			},
		},
		{"list20", page, list(20, anyHot)},
		{"list100", page, list(100, big)},
		{"nested", `query($t: ID!, $n: Int!) { providerAccounts(tenantId: $t, first: $n) {
			nodes { id name bootstraps(first: 5) { nodes { id status machineId createdAt } } } } }`, list(20, anyHot)},
		{
			"create", `mutation($in: CreateProviderAccountInput!) { createProviderAccount(input: $in) { providerAccount ` + accountSelection + ` } }`,
			func(r *rand.Rand) (params, map[string]any) {
				t := anyHot(r)
				// Behind the seeded names, so that lists of 20 stay as they are.
				name := fmt.Sprintf("bench-%d-%d", run, created.Add(1))
				return params{Tenant: t, Name: name}, map[string]any{"in": map[string]any{
					"tenantId": t, "provider": "sim", "name": name, "config": map[string]any{"apiToken": "secret://sim"},
				}}
			},
		},
	}
}

// request makes one request and checks that it was answered; a GraphQL error fails the run.
func (t *target) request(ctx context.Context, client *http.Client, op operation, r *rand.Rand) ([]byte, error) {
	p, variables := op.draw(r)
	path, body := "/"+op.name, any(p)
	if t.name == "server" {
		path, body = "/graphql", map[string]any{"query": op.query, "variables": variables}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token := t.token(p.Tenant); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"errors"`)) {
		return nil, fmt.Errorf("%s %s: %s %.300s", t.name, op.name, resp.Status, answer)
	}
	return answer, nil
}

// compareAnswers makes sure that both targets answer the same question with the same data.
func compareAnswers(ctx context.Context, server, bare *target) error {
	client := &http.Client{Timeout: 10 * time.Second}
	for _, op := range operations() {
		if op.name == "create" {
			continue // each makes a row of its own
		}
		var data [2]any
		for i, t := range []*target{server, bare} {
			answer, err := t.request(ctx, client, op, rand.New(rand.NewPCG(1, 2)))
			if err != nil {
				return err
			}
			var parsed map[string]any
			if err := json.Unmarshal(answer, &parsed); err != nil {
				return fmt.Errorf("%s %s: %w", t.name, op.name, err)
			}
			data[i] = parsed["data"]
		}
		a, _ := json.Marshal(data[0])
		b, _ := json.Marshal(data[1])
		if !bytes.Equal(a, b) {
			return fmt.Errorf("%s: the answers differ:\n%.400s\n%.400s", op.name, a, b)
		}
	}
	return nil
}

// cell is one measurement of one operation on one target.
type cell struct {
	op, target string
	round      int
	perSecond  float64
	p50, p99   time.Duration
	cpu        time.Duration // of the target's process, per 1,000 requests
	rssMiB     float64
}

// measure runs every operation on both targets in every round, in an order that alternates.
func measure(ctx context.Context, s settings, server, bare *target) ([]cell, error) {
	var cells []cell
	for round := range s.rounds {
		for _, op := range operations() {
			order := []*target{server, bare}
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, t := range order {
				c, err := measureCell(ctx, s, op, t)
				if err != nil {
					return nil, err
				}
				c.round = round
				cells = append(cells, c)
				fmt.Fprintf(os.Stderr, "bench: round %d %-8s %-7s %8.0f/s\n", round+1, op.name, t.name, c.perSecond)
			}
		}
	}
	return cells, nil
}

func measureCell(ctx context.Context, s settings, op operation, t *target) (cell, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: s.conns, MaxConnsPerHost: s.conns}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	if _, _, err := load(ctx, s.conns, s.warmup, client, op, t); err != nil {
		return cell{}, err
	}
	before, err := cpuTime(t.cmd.Process.Pid)
	if err != nil {
		return cell{}, err
	}
	latencies, elapsed, err := load(ctx, s.conns, s.cell, client, op, t)
	if err != nil {
		return cell{}, err
	}
	after, err := cpuTime(t.cmd.Process.Pid)
	if err != nil {
		return cell{}, err
	}
	rss, err := residentMiB(t.cmd.Process.Pid)
	if err != nil {
		return cell{}, err
	}
	slices.Sort(latencies)
	n := len(latencies)
	return cell{
		op: op.name, target: t.name, perSecond: float64(n) / elapsed.Seconds(),
		p50: latencies[n/2], p99: latencies[n*99/100], cpu: (after - before) * 1000 / time.Duration(n), rssMiB: rss,
	}, nil
}

// load keeps the connections busy for that long and gives the latency of each request.
func load(ctx context.Context, conns int, d time.Duration, client *http.Client, op operation, t *target) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([][]time.Duration, conns)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), uint64(start.UnixNano())))
			for time.Since(start) < d && ctx.Err() == nil {
				began := time.Now()
				if _, err := t.request(ctx, client, op, r); err != nil {
					cancel(err)
					return
				}
				all[i] = append(all[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	latencies := slices.Concat(all...)
	if len(latencies) == 0 {
		return nil, 0, errors.New("no request was answered")
	}
	return latencies, elapsed, nil
}

// cpuTime is what the process has used, from /proc, in steps of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold spaces; utime and stime are the 12th and 13th field behind it.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

func residentMiB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20), err
}
