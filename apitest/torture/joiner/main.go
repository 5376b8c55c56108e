// Command joiner is the agent of a machine that only has to become a host: it is bcd up to the moment at which bcd is joined, and ends
// there, so that ten thousand of them fit on one computer.
//
// It owns nothing but that end: all it does is done by package agent. The invariant: it ends well only after the certificate is on disk.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"better/compute/agent"
)

// What bcd's exit codes say: after refused a restart is no use.
const (
	exitFailed  = 1
	exitRefused = 3
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	err := run(ctx, stop)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "joiner:", err)
	if _, refused := errors.AsType[*agent.RefusedError](err); refused {
		os.Exit(exitRefused)
	}
	os.Exit(exitFailed)
}

// run is called as bcd is: run --config FILE.
func run(ctx context.Context, joined func()) error {
	config, err := agent.LoadConfig(os.Args[len(os.Args)-1])
	if err != nil {
		return err
	}
	go func() {
		defer joined()
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(config.StateDir, "cert.pem")); err == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return agent.New(config, "joiner", slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(ctx)
}
