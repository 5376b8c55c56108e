package apitest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

var neighbourly = flag.Int("neighbour-calls", 60, "how many calls TestOneCallerLeavesRoom makes beside the crowd, and as many before")

const (
	crowdReading, crowdWriting = 100, 50 // connections of one caller
	crowdAtMost                = 10      // half of the connections to the database
)

// crowd is one caller who asks for as much as it can on many connections.
type crowd struct {
	*process
	t                    *testing.T
	token                string
	http                 *http.Client
	served, refused, odd atomic.Int64
	pools                atomic.Int64
}

func (c *crowd) read() string {
	return `{ pools(tenantId: "crowded", first: 100) { nodes { id name class agent tenantId } } }`
}

func (c *crowd) write() string {
	var fields strings.Builder
	for i := range 20 {
		fmt.Fprintf(&fields, `m%d: createPool(input: {tenantId: "crowded", name: "p%d", class: VPS_HOST, agent: BCD}) { pool { id } } `, i, c.pools.Add(1))
	}
	return "mutation { " + fields.String() + "}"
}

// ask sends a document and counts what comes of it.
func (c *crowd) ask(ctx context.Context, document string) {
	body, err := json.Marshal(map[string]any{"query": document})
	if err != nil {
		c.t.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+graphqlPath, strings.NewReader(string(body)))
	if err != nil {
		c.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", typeJSON)
	resp, err := c.http.Do(req)
	if err != nil {
		return // the test is over
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusOK && !strings.Contains(string(answer), `"errors"`):
		c.served.Add(1)
	case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" && strings.Contains(string(answer), `"rule":"operations"`):
		c.refused.Add(1)
	default:
		if c.odd.Add(1) == 1 {
			c.t.Errorf("%d %s", resp.StatusCode, answer)
		}
	}
}

// TestOneCallerLeavesRoom has one caller take all it can get by 150 connections, and looks at what is left for the caller of another tenant: they
// are never refused, and of the crowd never more is executed at a time than one caller may have. How long they wait is for people to read.
func TestOneCallerLeavesRoom(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.settings["database"].(map[string]any)["maxConns"] = 2 * crowdAtMost
	delete(d.settings["limits"].(map[string]any), "operationWait") // the default
	transport := &http.Transport{MaxIdleConnsPerHost: crowdReading + crowdWriting}
	c := &crowd{t: t, token: d.caller("user:crowd", "tenant-admin compute-tenant/crowded"), http: &http.Client{Transport: transport}}
	neighbour := d.caller("user:neighbour", "tenant-admin compute-tenant/quiet")
	c.process = d.serve(t)
	defer transport.CloseIdleConnections()
	for range 5 {
		c.ask(t.Context(), c.write())
	}
	quiet := c.timeCalls(t, neighbour)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var crowd sync.WaitGroup
	loop := func(connections int, document func() string) {
		for range connections {
			crowd.Go(func() {
				for ctx.Err() == nil {
					c.ask(ctx, document())
				}
			})
		}
	}
	loop(crowdReading, c.read)
	loop(crowdWriting, c.write)
	most := 0
	crowd.Go(func() {
		for ctx.Err() == nil {
			most = max(most, c.running(t))
		}
	})
	before := c.served.Load()
	harness.Await(t, "the crowd has all that it gets", func() bool { return c.served.Load() > before+20 })
	loud := c.timeCalls(t, neighbour)
	stop()
	crowd.Wait()
	if most > crowdAtMost+1 || most < 2 {
		t.Errorf("%d operations were executed at a time, of which one was the neighbour's; a caller may have %d", most, crowdAtMost)
	}
	harness.Report(t, "neighbours", 0, "connections=%d crowd-served=%d crowd-refused=%d most-running=%d of=%d neighbour-calls=%d neighbour-refused=0 quiet-p90-ms=%.1f p90-ms=%.1f ratio=%.1f",
		crowdReading+crowdWriting, c.served.Load(), c.refused.Load(), most, crowdAtMost+1, *neighbourly, ms(quiet), ms(loud), ms(loud)/ms(quiet))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// timeCalls calls one after the other, of which none may fail, and gives the 90th percentile of what they took.
func (c *crowd) timeCalls(t *testing.T, token string) time.Duration {
	t.Helper()
	var took []time.Duration
	for range *neighbourly {
		start := time.Now()
		out := c.execute(t, token, `{ pools(tenantId: "quiet", first: 20) { nodes { id } } }`, nil)
		took = append(took, time.Since(start))
		if out.Code != "" {
			t.Errorf("the neighbour is answered %s: %s", out.Code, out.Message)
		}
	}
	slices.Sort(took)
	return took[len(took)*9/10]
}

var runningNow = regexp.MustCompile(`(?m)^compute_operations_running (\d+)$`)

// running is how many operations the server executes.
func (c *crowd) running(t *testing.T) int {
	t.Helper()
	a, err := c.try(t.Context(), http.MethodGet, "/metrics", "", "", nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	found := runningNow.FindSubmatch(a.body)
	if found == nil {
		t.Errorf("no such metric: %s", a.body)
		return 0
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}
