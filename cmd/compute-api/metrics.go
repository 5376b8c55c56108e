package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"better/compute/bootstrap"
	"better/compute/model"
)

// meters counts what the runs and the joins of this replica do. Labels are of closed sets: no tenant, no account and nothing that a
// caller sends becomes one.
type meters struct {
	intents  prometheus.Counter
	orders   prometheus.Counter
	seconds  *prometheus.HistogramVec
	ended    *prometheus.CounterVec
	refusals *prometheus.CounterVec
}

func newMeters(registry prometheus.Registerer) (*meters, error) {
	m := &meters{
		intents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "compute_order_intents_total", Help: "Orders that were meant: one for each bootstrap of an offer.",
		}),
		orders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "compute_orders_sent_total", Help: "Orders sent to providers and not clearly refused, repeats of one whose answer was lost included.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_bootstrap_state_seconds", Help: "Time that bootstraps were in a state before they left it.",
			Buckets: prometheus.ExponentialBuckets(0.25, 4, 8),
		}, []string{"state"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_bootstraps_ended_total", Help: "Bootstraps that joined or failed, by the reason of the failure.",
		}, []string{"status", "reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_join_refusals_total", Help: "Joins that were refused, by reason.",
		}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.intents, m.orders, m.seconds, m.ended, m.refusals} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Intended is bootstrap.Meter's.
func (m *meters) Intended() { m.intents.Inc() }

// Ordered is bootstrap.Meter's.
func (m *meters) Ordered() { m.orders.Inc() }

// Left is bootstrap.Meter's.
func (m *meters) Left(from, to model.BootstrapStatus, reason string, after time.Duration) {
	m.seconds.WithLabelValues(string(from)).Observe(after.Seconds())
	if to.Final() {
		m.ended.WithLabelValues(string(to), reason).Inc()
	}
}

func (m *meters) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }

const (
	// figuresAge is how old figures may be: who reads the metrics in a loop costs the database no more than one that does not.
	figuresAge  = 5 * time.Second
	figuresTime = 2 * time.Second
)

// figures is how the whole installation stands.
type figures struct {
	*bootstrap.Figures

	Unsealed time.Duration // the age of the oldest audit row that is in no chain
}

// standing reads how all runs, and the audit log, stand when the metrics are asked for. Every replica tells the same: take the largest, not the sum.
type standing struct {
	read func(context.Context) (*figures, error)
	log  *slog.Logger

	live, orphans                        *prometheus.Desc
	uncertain, limited, blocked, refused *prometheus.Desc
	unsealed                             *prometheus.Desc

	mu   sync.Mutex
	last *figures
	at   time.Time
}

func newStanding(read func(context.Context) (*figures, error), log *slog.Logger) *standing {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &standing{
		read: read, log: log,
		live:      gauge("compute_bootstraps_live", "Bootstraps that are not over, by state; failed ones until they are cleaned up.", "status"),
		uncertain: gauge("compute_bootstraps_uncertain", "Bootstraps that wait for somebody to say what became of an order."),
		limited:   gauge("compute_bootstraps_order_limited", "Bootstraps that wait until their tenant may order again."),
		blocked:   gauge("compute_cleanups_blocked", "Cleanups that cannot go on without somebody."),
		orphans:   gauge("compute_orphans_open", "Machines without an owner, by which side has none.", "kind"),
		refused:   gauge("compute_accounts_refused", "Accounts whose calls are held back since their credentials were refused."),
		unsealed:  gauge("compute_audit_unsealed_seconds", "Age of the oldest row of the audit log that is in no chain."),
	}
}

// Describe is prometheus.Collector's.
func (s *standing) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.live, s.uncertain, s.limited, s.blocked, s.orphans, s.refused, s.unsealed} {
		out <- d
	}
}

// Collect is prometheus.Collector's. Without the database these figures are missing and the others are not.
func (s *standing) Collect(out chan<- prometheus.Metric) {
	f := s.figures()
	if f == nil {
		return
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for status, n := range f.Live {
		gauge(s.live, n, string(status))
	}
	for kind, n := range f.Orphans {
		gauge(s.orphans, n, string(kind))
	}
	gauge(s.uncertain, f.Uncertain)
	gauge(s.limited, f.Limited)
	gauge(s.blocked, f.Blocked)
	gauge(s.refused, f.Refused)
	out <- prometheus.MustNewConstMetric(s.unsealed, prometheus.GaugeValue, f.Unsealed.Seconds())
}

// figures is nil while the database cannot tell.
func (s *standing) figures() *figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < figuresAge {
		return s.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), figuresTime)
	defer cancel()
	f, err := s.read(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "reading figures of bootstraps and the audit log", "error", err)
	}
	s.last, s.at = f, time.Now()
	if err != nil {
		s.last = nil
	}
	return s.last
}
