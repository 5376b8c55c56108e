package server

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config is what an operator can set about the edge. The zero value of a limit means its default.
type Config struct {
	Limits Limits

	// Introspection lets clients read the schema. It is also what GraphiQL needs to complete and document.
	Introspection bool
	// Suggestions lets error messages say "did you mean ...", which tells names of the schema.
	Suggestions bool
	// GraphiQL serves the explorer at /graphiql.
	GraphiQL bool

	// AllowedOrigins lists the origins ("https://console.example.com") of other sites whose pages may call this server. A
	// request that carries another Origin than these or its own host is refused.
	AllowedOrigins []string
	// PersistedOperations is the path of a JSON file {"<sha256 of the document>": "<document>"}. When set, no other
	// document is executed.
	PersistedOperations string
}

// Limits bounds what one request, connection or caller can make the server do.
type Limits struct {
	BodyBytes     int // of a request body or a WebSocket message
	DocumentBytes int // of the GraphQL document
	Tokens        int // lexical tokens of the document
	Depth         int // nested selection sets
	Cost          int // objects that an operation can return at most, see pricer
	RootFields    int // fields at the top of one operation
	Aliases       int // aliased fields in one document
	AnswerBytes   int // of an answer, or of an event

	OperationTime     time.Duration // of a query or mutation
	LiveOperationTime time.Duration // of one that selects a field that calls a provider
	InitTime          time.Duration // from the WebSocket upgrade to connection_init
	WriteTime         time.Duration // until one message is with the client
	KeepAlive         time.Duration // between pings on an idle stream
	DrainNotice       time.Duration // how long a server that is to stop tells its callers before it does; zero means not at all
	DrainTime         time.Duration // that requests in flight get after that

	SocketOperations  int // running at a time on one WebSocket
	SocketsPerSubject int // open WebSockets of one caller
	StreamsPerSubject int // open Server-Sent Events streams of one caller
	StreamsPerTenant  int // running subscriptions in one tenant, of all its callers
	PendingSockets    int // open WebSockets whose caller is not known yet; the oldest makes room for one more

	OperationsPerSubject int           // of one caller that are executed at a time; fewer than there are connections to the database
	OperationsPerTenant  int           // the same for all callers of one tenant
	OperationWait        time.Duration // how long one more waits before it is refused

	PointsPerSecond       int // of cost, that one caller gets back
	PointsAtMost          int // that one caller can save up
	TenantPointsPerSecond int // the same for all callers of one tenant
	TenantPointsAtMost    int
}

func defaultLimits() Limits {
	return Limits{
		BodyBytes:     256 << 10,
		DocumentBytes: 64 << 10,
		Tokens:        2_000,
		Depth:         15,
		Cost:          5_000,
		RootFields:    20,
		Aliases:       100,
		AnswerBytes:   8 << 20,

		OperationTime:     10 * time.Second,
		LiveOperationTime: 35 * time.Second,
		InitTime:          3 * time.Second,
		WriteTime:         5 * time.Second,
		KeepAlive:         15 * time.Second,
		DrainTime:         7 * time.Second,

		SocketOperations:  20,
		SocketsPerSubject: 100,
		StreamsPerSubject: 100,
		StreamsPerTenant:  10_000,
		PendingSockets:    1_000,

		OperationsPerSubject: 10,
		OperationsPerTenant:  15,
		OperationWait:        5 * time.Second,

		PointsPerSecond:       2_000,
		PointsAtMost:          20_000,
		TenantPointsPerSecond: 6_000,
		TenantPointsAtMost:    60_000,
	}
}

// Check judges a configuration, the files that it names included. A joined error has one line for each setting that is wrong,
// which starts with its name.
func (c Config) Check() error {
	_, limits := c.Limits.withDefaults()
	_, operations := loadOperations(c.PersistedOperations)
	return errors.Join(limits, checkOrigins(c.AllowedOrigins), operations)
}

// checkOrigins holds each to the form in which browsers send it, since it is compared as text: no path, no wildcard.
func checkOrigins(origins []string) error {
	var problems []error
	for i, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.Contains(origin, "*") {
			problems = append(problems, fmt.Errorf("allowedOrigins[%d]: %q is not of the form https://host[:port]", i, origin))
		}
	}
	return errors.Join(problems...)
}

// withDefaults fills in what was left at zero and refuses what is below it.
func (l Limits) withDefaults() (Limits, error) {
	d, problems := defaultLimits(), []error{}
	counts := []struct {
		name     string
		set      *int
		fallback int
	}{
		{"bodyBytes", &l.BodyBytes, d.BodyBytes},
		{"documentBytes", &l.DocumentBytes, d.DocumentBytes},
		{"tokens", &l.Tokens, d.Tokens},
		{"depth", &l.Depth, d.Depth},
		{"cost", &l.Cost, d.Cost},
		{"rootFields", &l.RootFields, d.RootFields},
		{"aliases", &l.Aliases, d.Aliases},
		{"answerBytes", &l.AnswerBytes, d.AnswerBytes},
		{"socketOperations", &l.SocketOperations, d.SocketOperations},
		{"socketsPerSubject", &l.SocketsPerSubject, d.SocketsPerSubject},
		{"streamsPerSubject", &l.StreamsPerSubject, d.StreamsPerSubject},
		{"streamsPerTenant", &l.StreamsPerTenant, d.StreamsPerTenant},
		{"pendingSockets", &l.PendingSockets, d.PendingSockets},
		{"operationsPerSubject", &l.OperationsPerSubject, d.OperationsPerSubject},
		{"operationsPerTenant", &l.OperationsPerTenant, d.OperationsPerTenant},
		{"pointsPerSecond", &l.PointsPerSecond, d.PointsPerSecond},
		{"pointsAtMost", &l.PointsAtMost, d.PointsAtMost},
		{"tenantPointsPerSecond", &l.TenantPointsPerSecond, d.TenantPointsPerSecond},
		{"tenantPointsAtMost", &l.TenantPointsAtMost, d.TenantPointsAtMost},
	}
	for _, c := range counts {
		if *c.set < 0 {
			problems = append(problems, fmt.Errorf("limits.%s: must not be negative", c.name))
		}
		if *c.set == 0 {
			*c.set = c.fallback
		}
	}
	times := []struct {
		name     string
		set      *time.Duration
		fallback time.Duration
	}{
		{"operationTime", &l.OperationTime, d.OperationTime},
		{"liveOperationTime", &l.LiveOperationTime, d.LiveOperationTime},
		{"operationWait", &l.OperationWait, d.OperationWait},
		{"initTime", &l.InitTime, d.InitTime},
		{"writeTime", &l.WriteTime, d.WriteTime},
		{"keepAlive", &l.KeepAlive, d.KeepAlive},
		{"drainNotice", &l.DrainNotice, 0},
		{"drainTime", &l.DrainTime, d.DrainTime},
	}
	for _, t := range times {
		if *t.set < 0 {
			problems = append(problems, fmt.Errorf("limits.%s: must not be negative", t.name))
		}
		if *t.set == 0 {
			*t.set = t.fallback
		}
	}
	return l, errors.Join(problems...)
}
