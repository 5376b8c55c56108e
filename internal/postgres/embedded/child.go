package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// child is one postgres process.
type child struct {
	pid     int
	process *os.Process
	done    chan struct{}
}

// ours are the settings of every server. A failed statement is not logged: its text holds what callers sent.
var ours = []string{
	"listen_addresses=", "unix_socket_permissions=0700", "max_connections=50", "shared_buffers=64MB",
	"log_min_messages=log", "log_checkpoints=off",
}

func startChild(bin Binaries, p paths, account *account, settings []string) (*child, error) {
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of PostgreSQL: %w", err)
	}
	defer log.Close()
	args := []string{"-D", p.data, "-k", p.socket}
	for _, setting := range slices.Concat(ours, settings) {
		args = append(args, "-c", setting)
	}
	cmd := bin.command(context.Background(), account, "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C in a terminal must reach this process only, which stops postgres after its own work.
	cmd.SysProcAttr.Setpgid = true
	// Should this process die without stopping it, the kernel tells postgres to shut down.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT

	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked ends, so this one has to live as long as postgres
		// does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := startInterruptible(cmd)
		if err == nil {
			c.pid, c.process = cmd.Process.Pid, cmd.Process
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting PostgreSQL from %s: %w", bin.Dir, err)
	}
	return c, nil
}

// startInterruptible starts cmd with SIGINT not ignored. A job that a shell started in the background ignores it, and
// postgres would inherit that until its own handler is in place: should we be killed in between, it would miss the
// message and stay.
func startInterruptible(cmd *exec.Cmd) error {
	if signal.Ignored(syscall.SIGINT) {
		handled := make(chan os.Signal, 1)
		signal.Notify(handled, syscall.SIGINT)
		defer signal.Ignore(syscall.SIGINT)
	}
	return cmd.Start()
}

// stop ends postgres with growing force and returns when it is gone.
func (c *child) stop(ctx context.Context) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, fastIn}, {syscall.SIGQUIT, immediateIn}} {
		if err := c.process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stopping PostgreSQL: %w", err)
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-c.done:
			timer.Stop()
			return nil
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing PostgreSQL: %w", err)
	}
	<-c.done
	return errors.New("PostgreSQL did not stop in time and was killed; it recovers at the next start")
}

// initialise makes the data directory aside and renames it when it is complete, so that a half-made one is never used.
func initialise(ctx context.Context, bin Binaries, p paths, account *account) error {
	unfinished := p.data + ".init"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("removing an unfinished data directory: %w", err)
	}
	if err := account.mkdir(unfinished); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	cmd := bin.command(ctx, account, "initdb", "-D", unfinished, "-U", superuser, "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-instructions")
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making the data directory with %s: %w: %s", cmd.Path, err, lastLines(string(out)))
	}
	if err := os.Rename(unfinished, p.data); err != nil {
		return fmt.Errorf("putting the data directory in place: %w", err)
	}
	return nil
}

// command runs a program of the server as the account, with a clean environment: a PGDATA or PGOPTIONS of the user's
// shell is not meant for this server.
func (b Binaries) command(ctx context.Context, account *account, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(b.Dir, name), args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}, b.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if account != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: account.uid, Gid: account.gid}
	}
	return cmd
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
