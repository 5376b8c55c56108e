// Package cloud is a simulated cloud: a vendor's HTTP API with offers, orders, installs and machines, on the standard library
// alone. API.md beside this file describes the API.
//
// It owns one state directory: an append-only ledger, fsynced before any answer that depends on it, and a directory per
// machine in which the real bcd agent runs as a child process. It refuses to know anything of the server that buys here:
// it sees API tokens, names, labels and client tokens, as any vendor would.
//
// The invariant: what the ledger says is what the cloud knows. A kill at any moment loses no order that was answered, and sells
// none twice: on Open the ledger is replayed and the machines that ran are started again.
package cloud

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options says how a cloud behaves. Only Dir is needed.
type Options struct {
	Dir          string        // the state; made when missing; one cloud at a time
	Catalogue    []Offer       // nil: Catalogue()
	AgentBinary  string        // the bcd that machines run; empty: every install fails
	ReadyDelay   time.Duration // from an order to a ready machine; 0: a second
	InstallDelay time.Duration // from an install request to its end; 0: a second
	ListLag      time.Duration // how long lists miss a new machine where they lag; 0: a second
	PageSize     int           // items per page when a caller names none; 0: 10
	Quota        int           // machines per project; 0: 1000
	Now          func() time.Time
	Log          *slog.Logger
}

// Cloud is an open simulated cloud. Its methods may be called from any goroutine.
type Cloud struct {
	options Options
	id      string
	lock    *os.File
	faults  faultScript

	life  context.Context // ends with Close; hanging requests and agents end with it
	end   context.CancelFunc
	tasks sync.WaitGroup // installs and agents

	mu       sync.Mutex // guards everything below, the ledger's order and the machines' files
	ledger   *ledger
	projects map[string]*project
}

// Open replays the ledger under options.Dir and starts the agents of the machines that ran. It fails when another cloud,
// in this process or another, has the directory open.
func Open(options Options) (*Cloud, error) {
	options.Catalogue = orDefault(options.Catalogue, Catalogue)
	options.ReadyDelay = cmp.Or(options.ReadyDelay, time.Second)
	options.InstallDelay = cmp.Or(options.InstallDelay, time.Second)
	options.ListLag = cmp.Or(options.ListLag, time.Second)
	options.PageSize = cmp.Or(options.PageSize, 10)
	options.Quota = cmp.Or(options.Quota, 1000)
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	if options.Now == nil {
		options.Now = time.Now
	}
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the simulated cloud: %w", err)
	}
	options.Dir = dir
	if options.AgentBinary != "" { // machines have working directories of their own
		if options.AgentBinary, err = filepath.Abs(options.AgentBinary); err != nil {
			return nil, fmt.Errorf("opening the simulated cloud: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, machinesDir), 0o700); err != nil {
		return nil, fmt.Errorf("opening the simulated cloud: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the simulated cloud: %w", err)
	}
	c := &Cloud{options: options, lock: lock, projects: map[string]*project{}}
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the simulated cloud: %w", err), c.Close())
	}
	return c, nil
}

func orDefault(offers []Offer, fallback func() []Offer) []Offer {
	if offers == nil {
		return fallback()
	}
	return offers
}

// lockDir holds a lock that the kernel drops when the process dies, so that two clouds never run the same machines.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another simulated cloud: %w", dir, err), file.Close())
	}
	return file, nil
}

// load replays the ledger and takes up what was going on when its last line was written.
func (c *Cloud) load() error {
	ledger, entries, err := openLedger(c.options.Dir)
	if err != nil {
		return err
	}
	c.ledger = ledger
	if len(entries) == 0 {
		c.id = strings.ToLower(rand.Text())
		return c.record(Entry{Kind: EntryCloud, CloudID: c.id})
	}
	if c.id = entries[0].CloudID; c.id == "" {
		return errors.New("the ledger does not begin with the cloud's id")
	}
	for _, e := range entries {
		if err := c.replay(e); err != nil {
			return fmt.Errorf("replaying the ledger: %w", err)
		}
	}
	for _, p := range c.projects {
		for _, m := range p.machines {
			if err := c.resume(m); err != nil {
				return fmt.Errorf("resuming machine %s: %w", m.ID, err)
			}
		}
	}
	return nil
}

// record appends to the ledger. The caller holds c.mu, or is alone with c.
func (c *Cloud) record(e Entry) error {
	e.Time = c.options.Now().UTC()
	return c.ledger.append(e)
}

// Close cuts the power of every machine, ends hanging requests, and gives the directory back. The machines run again after
// the next Open. The server that Handler was given to should be shut down first.
func (c *Cloud) Close() error {
	c.stop()
	c.tasks.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.ledger != nil {
		err = c.ledger.close()
	}
	return errors.Join(err, c.lock.Close())
}

// stop ends life. Behind the lock, so that a request that is being handled starts no task any more.
func (c *Cloud) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// task starts fn, unless the cloud closes. The caller holds c.mu, or is alone with c.
func (c *Cloud) task(fn func()) {
	if c.life.Err() == nil {
		c.tasks.Go(fn)
	}
}

// Serve opens a cloud and serves its API on addr until ctx ends; that end is no error. It logs the address when it listens.
func Serve(ctx context.Context, addr string, options Options) error {
	c, err := Open(options)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	c.options.Log.InfoContext(ctx, "simulated cloud listening", "address", listener.Addr().String())
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		c.stop() // hanging requests would hold the shutdown up
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if server.Shutdown(patience) != nil {
			err = server.Close()
		}
	}
	return errors.Join(err, c.Close())
}
