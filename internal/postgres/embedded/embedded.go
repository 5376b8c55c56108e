// Package embedded owns a PostgreSQL server that runs as a child of this process, for those who bring no database.
//
// It refuses to know what is stored in it. The invariants: a data directory has at most one server; the server never
// outlives this process, not even a kill -9 of it; it is reached through a Unix socket in a private directory and
// never over TCP; a data directory is never emptied or replaced.
package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser = "compute"
	login     = "compute_server"

	// After a kill -9 of this process and of postgres the old pid is still seen for a moment.
	staleFor = 15 * time.Second
	// Recovery after a crash may take long; a server that neither answers nor ends by then is given up.
	readyIn = 2 * time.Minute
	// So long may the lock of a dead owner stay in a child that it had not finished to start.
	inheritedFor = 3 * time.Second

	fastIn      = 15 * time.Second
	immediateIn = 5 * time.Second
)

// ErrInUse is what Start returns when another server, of this process or another, has the state directory.
var ErrInUse = errors.New("PostgreSQL already runs on this state directory")

// Options say where the data lives. StateDir is made when it is missing.
type Options struct {
	StateDir string
	Log      *slog.Logger // nil: no logs
	Settings []string     // "name=value" of postgresql.conf, on top of ours
	Finder   *Finder      // nil: DefaultFinder
}

// Server is a running PostgreSQL.
type Server struct {
	paths paths
	log   *slog.Logger
	lock  *os.File
	child *child

	released sync.Once
}

// Start finds the server's programs, makes the data directory when there is none, and returns when the server
// answers. A second Start on one StateDir fails at once with ErrInUse, in this process or another.
func Start(ctx context.Context, o Options) (*Server, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	finder := o.Finder
	if finder == nil {
		finder = DefaultFinder()
	}
	paths, account, err := place(o.StateDir, log)
	if err != nil {
		return nil, err
	}
	lock, err := lockState(ctx, paths.lock)
	if err != nil {
		return nil, err
	}
	s := &Server{paths: paths, log: log, lock: lock}
	if err := s.start(ctx, finder, account, o.Settings); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, finder *Finder, account *account, settings []string) error {
	if err := s.paths.clearSocket(); err != nil {
		return err
	}
	if err := account.mkdir(s.paths.socket); err != nil {
		return fmt.Errorf("making the socket's directory: %w", err)
	}
	want, err := dataMajor(s.paths.data)
	if err != nil {
		return err
	}
	bin, err := search{Finder: finder, account: account, cache: s.paths.packages, major: want, log: s.log}.find(ctx)
	if err != nil {
		return err
	}
	if want != 0 && want != bin.Major {
		return fmt.Errorf("the data directory %s belongs to PostgreSQL %d, but the programs in %s are version %d: "+
			"install PostgreSQL %d, or move the data over with pg_dump or pg_upgrade",
			s.paths.data, want, bin.Dir, bin.Major, want)
	}
	if want == 0 {
		if err := initialise(ctx, bin, s.paths, account); err != nil {
			return err
		}
	}
	return s.launch(ctx, bin, account, settings)
}

// launch starts postgres and waits until it answers; it starts it again while the leftovers of a killed one are seen.
func (s *Server) launch(ctx context.Context, bin Binaries, account *account, settings []string) error {
	stale, cancel := context.WithTimeout(ctx, staleFor)
	defer cancel()
	for {
		child, err := startChild(bin, s.paths, account, settings)
		if err != nil {
			return err
		}
		s.child = child
		err = s.ready(ctx)
		if err == nil {
			if err := s.makeLogin(ctx); err != nil {
				return errors.Join(err, s.child.stop(context.WithoutCancel(ctx)))
			}
			s.log.InfoContext(ctx, "embedded PostgreSQL is up", "version", bin.Major, "data", s.paths.data, "pid", child.pid)
			return nil
		}
		if !errors.Is(err, errEnded) {
			return errors.Join(err, s.child.stop(context.WithoutCancel(ctx)))
		}
		log, readErr := os.ReadFile(s.paths.log)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		if stale.Err() != nil || !leftovers(log) {
			return fmt.Errorf("%w: %s", err, lastLines(string(log)))
		}
		select {
		case <-stale.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var errEnded = errors.New("embedded PostgreSQL ended before it was ready")

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := s.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.child.done:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("waiting for embedded PostgreSQL: %w (last answer: %w)", ctx.Err(), err)
		case <-poll.C:
		}
	}
}

// answers reports whether it is our child that answers: the server of an owner that was killed while it started may
// have come up in this same directory, and is about to shut down.
func (s *Server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var pid string
	if err := conn.QueryRow(ctx, "SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)").Scan(&pid); err != nil {
		return err
	}
	if pid != strconv.Itoa(s.child.pid) {
		return fmt.Errorf("process %s answers instead of process %d", pid, s.child.pid)
	}
	return nil
}

// leftovers reports whether postgres refused to start because of a predecessor that is not quite gone, and that may
// have written to the same log since.
func leftovers(log []byte) bool {
	return bytes.Contains(log, []byte("lock file")) || bytes.Contains(log, []byte("pre-existing shared memory block"))
}

// URL is the DSN of the server's first database, for its superuser. It holds no secret: who may enter the
// socket's directory may connect.
func (s *Server) URL() string { return s.paths.url(superuser) }

// LoginURL is the DSN of a login that owns nothing and holds no right but those that it is granted. It holds no secret either.
func (s *Server) LoginURL() string { return s.paths.url(login) }

// makeLogin makes the login in a data directory that does not have it.
func (s *Server) makeLogin(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return fmt.Errorf("connecting to embedded PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "DO $$ BEGIN CREATE ROLE "+login+" LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	if err != nil {
		return fmt.Errorf("making the login of embedded PostgreSQL: %w", err)
	}
	return nil
}

// URL is the DSN of the server that another process runs on a state directory, as Start found by ErrInUse.
func URL(stateDir string) (string, error) {
	paths, _, err := place(stateDir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	return paths.url(superuser), nil
}

func (p paths) url(user string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Path: "/postgres",
		// The driver takes the plus that stands for a space as a plus.
		RawQuery: "host=" + strings.ReplaceAll(url.QueryEscape(p.socket), "+", "%20"),
	}
	return u.String()
}

// Done is closed when the server has ended, whoever ended it.
func (s *Server) Done() <-chan struct{} { return s.child.done }

// Stop ends the server and waits for it: open transactions are rolled back at once, committed data is kept. When ctx
// ends first the server is killed, which keeps committed data too. Idempotent.
func (s *Server) Stop(ctx context.Context) error {
	return errors.Join(s.child.stop(ctx), s.release())
}

// release gives the state directory free, once: a second Stop must not disturb the next owner. The server has ended.
func (s *Server) release() error {
	var err error
	s.released.Do(func() {
		if s.paths.socketIsTemporary {
			err = s.paths.clearSocket()
		}
		// Closing alone would leave the lock to a child that is being started elsewhere in this process.
		err = errors.Join(err, syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN), s.lock.Close())
	})
	return err
}

// lockState takes the lock that makes this process the only owner of the state directory. It goes with the process, but a moment
// late when that was killed between a fork and its exec: then the lock is held although the owner is dead, and is waited for.
func lockState(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the state directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inheritedFor)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			if err := signLock(f); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		if ctx.Err() != nil || ownerLives(f) {
			return nil, errors.Join(fmt.Errorf("%s: %w: stop that one, or choose another state directory",
				filepath.Dir(path), ErrInUse), f.Close())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// signLock writes down who holds the lock.
func signLock(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("signing the lock: %w", err)
	}
	if _, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return fmt.Errorf("signing the lock: %w", err)
	}
	return nil
}

func ownerLives(f *os.File) bool {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil || pid <= 0 {
		return false
	}
	err = syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// dataMajor is the major version that made the data directory, 0 when there is none.
func dataMajor(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err == nil {
			return 0, fmt.Errorf("%s exists but is no PostgreSQL data directory: move it away", dir)
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data directory %s: %w", dir, err)
	}
	return major, nil
}
