package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// agent is a running supervisor of a machine's bcd process. A nil one is a machine that runs nothing.
type agent struct {
	cut  context.CancelFunc
	done chan struct{}
}

// stop cuts the power and waits until the process is gone.
func (a *agent) stop() {
	if a == nil {
		return
	}
	a.cut()
	<-a.done
}

const (
	consoleLimit = 256 << 10
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
)

func (c *Cloud) consoleFile(m *machine) string { return filepath.Join(c.machineDir(m), "console.log") }

// startAgent runs the machine's command until its power is cut. As a service manager would, it starts a command again that
// failed, ever more slowly, and leaves one alone whose exit code says that a restart is no use.
func (c *Cloud) startAgent(m *machine) {
	if c.life.Err() != nil {
		return
	}
	power, cut := context.WithCancel(m.power)
	a := &agent{cut: cut, done: make(chan struct{})}
	m.agent = a
	args, root, console := m.exec[1:], c.rootDir(m), c.consoleFile(m)
	c.task(func() {
		defer close(a.done)
		defer cut()
		for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
			err := c.runAgent(power, args, root, console)
			if power.Err() != nil {
				return
			}
			c.options.Log.Warn("the agent of a simulated machine ended", "machine", m.ID, "error", err)
			if final(err) {
				return
			}
			select {
			case <-power.Done():
				return
			case <-time.After(backoff):
			}
		}
	})
}

// final reports whether bcd ended for good: stopped, started wrongly, refused, or removed from its pool.
func final(err error) bool {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return slices.Contains([]int{2, 3, 4}, exit.ExitCode())
	}
	return err == nil
}

// runAgent runs the command once, with the machine's root as its working directory and nothing of our environment.
func (c *Cloud) runAgent(power context.Context, args []string, root, console string) error {
	out := &consoleLog{path: console}
	defer out.close()
	cmd := exec.CommandContext(power, c.options.AgentBinary, args...)
	cmd.Dir = root
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + root}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	// The kernel kills the child when the thread that started it ends, so the thread must live as long as the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// consoleLog keeps what an agent prints, at most twice consoleLimit on disk.
type consoleLog struct {
	path string
	file *os.File
	size int64
}

func (l *consoleLog) Write(p []byte) (int, error) {
	if err := l.open(); err != nil {
		return 0, err
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("writing the console log: %w", err)
	}
	return n, nil
}

// open opens the file, and moves a full one aside.
func (l *consoleLog) open() error {
	if l.file != nil && l.size < consoleLimit {
		return nil
	}
	if l.file != nil {
		l.close()
		if err := os.Rename(l.path, l.path+".old"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

func (l *consoleLog) close() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// lastLines gives up to n last lines of a file, none when it is not there.
func lastLines(path string, n int) ([]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return []string{}, nil
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return []string{}, nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return lines[max(0, len(lines)-n):], nil
}
