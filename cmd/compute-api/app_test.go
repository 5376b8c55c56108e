package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

// What follows tables by itself begins when they are there: a first start has nothing to warn of.
func TestFirstStartWarnsOfNothing(t *testing.T) {
	t.Parallel()
	c := defaultConfig()
	c.Listen, c.StateDir = "127.0.0.1:0", t.TempDir()
	c.Database.URL = emptyDatabase(t)
	log := &logged{}
	a, err := newApp(t.Context(), c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	started := false
	err = a.run(ctx, func(context.Context) error {
		started = true
		stop()
		return nil
	})
	if err != nil || !started {
		t.Fatalf("started %v: %v", started, err)
	}
	if text := log.text(); text != "" {
		t.Errorf("it warns:\n%s", text)
	}
}

func emptyDatabase(t *testing.T) string {
	t.Helper()
	beside, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), AsOwner: true, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beside.Close)
	name := "empty_" + strings.ToLower(rand.Text())
	if _, err := beside.ExecContext(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := beside.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	var present string
	if err := beside.NewRaw("SELECT current_database()").Scan(t.Context(), &present); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(beside.Pool.Config().ConnString(), "/"+present+"?", "/"+name+"?", 1)
}

type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
