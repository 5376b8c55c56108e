package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/internal/problem"
)

// metrics has labels of closed sets only: nothing that a caller sends becomes one.
type metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	operations *prometheus.CounterVec
	limits     *prometheus.CounterVec
	sockets    prometheus.Gauge
	streams    prometheus.Gauge
	running    prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_http_request_seconds", Help: "Time to answer an HTTP request, streams left out.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"route"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_graphql_responses_total", Help: "GraphQL responses, by operation type and the code of their first error.",
		}, []string{"type", "code"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_limit_refusals_total", Help: "Requests, operations and connections refused by a limit, by its name.",
		}, []string{"rule"}),
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{Name: "compute_websockets_open", Help: "Open WebSocket connections."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "compute_sse_streams_open", Help: "Open Server-Sent Events streams."}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "compute_operations_running", Help: "Queries, mutations and REST calls that are executed now."}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.operations, m.limits, m.sockets, m.streams, m.running} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

const metricsFormat = expfmt.TypeTextPlain

// gather writes down all metrics.
func (s *Server) gather(ctx context.Context) ([]byte, error) {
	families, err := s.deps.Metrics.Gather()
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(metricsFormat))
	for _, family := range families {
		err = errors.Join(err, encoder.Encode(family))
	}
	if err != nil {
		s.log.ErrorContext(ctx, "metrics cannot be told", "error", err)
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	return text.Bytes(), nil
}

func (m *metrics) request(route, method string, status int) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
}

func (m *metrics) operation(kind ast.Operation, resp *graphql.Response) {
	m.operations.WithLabelValues(string(kind), firstCode(resp)).Inc()
}

// refused counts a request that was not executed, whose type may not be known.
func (m *metrics) refused(resp *graphql.Response) {
	m.operations.WithLabelValues("refused", firstCode(resp)).Inc()
	if details, ok := firstDetails(resp); ok {
		if rule, ok := details["rule"].(string); ok {
			m.limit(rule)
		}
	}
}

// ruleOf is the name of the limit that an error is about.
func ruleOf(err error) string {
	rule, _ := problem.From(err).Details["rule"].(string)
	return rule
}

func (m *metrics) limit(rule string) { m.limits.WithLabelValues(rule).Inc() }

func firstCode(resp *graphql.Response) string {
	if len(resp.Errors) == 0 {
		return "OK"
	}
	code, _ := resp.Errors[0].Extensions["code"].(string)
	return code
}

func firstDetails(resp *graphql.Response) (map[string]any, bool) {
	if len(resp.Errors) == 0 {
		return nil, false
	}
	details, ok := resp.Errors[0].Extensions["details"].(map[string]any)
	return details, ok
}
