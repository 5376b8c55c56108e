package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/event"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

// jobVariable makes the test binary a child that can be killed, with a job to do.
const jobVariable = "STREAMS_JOB"

// job is what a child does: it writes events of the runs without end, or it reads the outbox from a position on.
type job struct {
	URL     string
	Runs    []string // of a writer
	Account string
	Seed    uint64
	Pause   time.Duration // between two transactions
	From    event.Position
}

// child makes the command of a job.
func (j job) child(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), os.Args[0]) // killed by whoever starts it
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	return cmd
}

func work(text string) (exitCode int) {
	go func() { // its parent holds the other end for as long as it lives
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.do(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (j job) do(ctx context.Context) error {
	db, err := postgres.Open(ctx, postgres.Options{URL: j.URL, MaxConns: 2})
	if err != nil {
		return err
	}
	if len(j.Runs) > 0 {
		return j.write(ctx, db)
	}
	return j.read(ctx, db)
}

var errAbandoned = errors.New("abandoned")

// write makes transactions as those of transitions are, only worse: they hold the row of their run, tell of it up to three times, commit
// late or not at all, and some were given their place in the order long before they got hold of the row.
func (j job) write(ctx context.Context, db *postgres.DB) error {
	rnd := rand.New(rand.NewPCG(j.Seed, 0))
	for {
		run := j.Runs[rnd.IntN(len(j.Runs))]
		err := db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
			if rnd.IntN(20) == 0 {
				if _, err := tx.NewRaw("SELECT pg_current_xact_id(), pg_sleep(?)", rnd.Float64()/100).Exec(ctx); err != nil {
					return err
				}
			}
			for range 1 + rnd.IntN(3) {
				if err := j.tell(ctx, tx, run); err != nil {
					return err
				}
			}
			if rnd.IntN(20) == 0 {
				if _, err := tx.NewRaw("SELECT pg_sleep(?)", rnd.Float64()/20).Exec(ctx); err != nil {
					return err
				}
			}
			if rnd.IntN(8) == 0 {
				return errAbandoned
			}
			return nil
		})
		if err != nil && !errors.Is(err, errAbandoned) && !problem.Is(err, problem.Unavailable) {
			return err
		}
		fmt.Println()
		time.Sleep(j.Pause)
	}
}

// tell counts the run's events in its row, and writes the next one.
func (j job) tell(ctx context.Context, tx bun.IDB, run string) error {
	var n int
	err := tx.NewRaw("UPDATE bootstraps SET attempt = attempt + 1 WHERE id = ? RETURNING attempt", run).Scan(ctx, &n)
	if err != nil {
		return err
	}
	return event.Append(ctx, tx, event.Record{
		TenantID: tenant, Type: "provider.bootstrap.progressed", BootstrapID: run, AccountID: j.Account,
		Data: model.JSON(fmt.Sprintf(`{"data": {"from": "claiming", "to": "identifying"}, "n": %d}`, n)),
	})
}

// read prints the events of a hub that begins at a position.
func (j job) read(ctx context.Context, db *postgres.DB) error {
	hub := event.NewHub(db, slog.New(slog.DiscardHandler))
	hub.StartAt(j.From)
	sub, err := hub.Subscribe(ctx, 100_000, func(*event.Event) bool { return true })
	if err != nil {
		return err
	}
	go func() { _ = hub.Run(ctx) }()
	out := bufio.NewWriter(os.Stdout)
	for e := range sub.C {
		s, err := sightingOf(e)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(s); err != nil {
			return err
		}
		if len(sub.C) == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return errors.New("cut off")
}

// sighting is an event as somebody saw it: where it stands, of which run it is, and the how manieth of the run.
type sighting struct {
	At  event.Position
	Run string
	N   int
}

func sightingOf(e *event.Event) (sighting, error) {
	var data struct{ N int }
	err := json.Unmarshal(e.Data, &data)
	return sighting{e.Position, e.BootstrapID, data.N}, err
}

// restarting keeps a child running until it is told to stop, and kills it again and again.
type restarting struct {
	job    func() job           // of the next child
	line   func([]byte)         // takes what it prints; only whole lines, for the last one may have been cut off
	every  func() time.Duration // until the next kill, from the child's first line on
	kills  int
	failed error
	done   chan struct{}
}

func (r *restarting) run(ctx context.Context, t testing.TB) {
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			if err := r.once(ctx, t); err != nil {
				r.failed = err
				return
			}
		}
	}()
}

func (r *restarting) once(ctx context.Context, t testing.TB) error {
	cmd := r.job().child(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	killed, works, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		r.awaitEnd(ctx, works, over)
		_ = cmd.Process.Kill()
	}()
	first := sync.OnceFunc(func() { close(works) })
	lines := bufio.NewReader(stdout)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		first()
		r.line(text)
	}
	close(over)
	<-killed
	_ = cmd.Wait() // how it was killed
	if stderr.Len() > 0 {
		return fmt.Errorf("a child ended by itself: %s", stderr.String())
	}
	return nil
}

// awaitEnd waits until the child has worked for its time, or is not needed any more. One that has not begun is let begin: on a busy machine none would
// get to anything.
func (r *restarting) awaitEnd(ctx context.Context, works, over <-chan struct{}) {
	var end <-chan time.Time
	for {
		select {
		case <-works:
			works, end = nil, time.After(r.every())
		case <-end:
			r.kills++
			return
		case <-ctx.Done():
			return
		case <-over:
			return
		}
	}
}
