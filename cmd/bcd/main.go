// Command bcd is the agent that runs on every host: it joins the pool that it was installed for, then heartbeats and
// renews its certificate until the host is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"better/compute/agent"
)

// version is set when a release is linked.
var version = "dev"

// What the exit code tells the service manager. After refused and removed a restart is no use.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitRemoved = 4
)

const usage = `bcd, the agent of a host

  bcd run --config FILE   join, then heartbeat until stopped
  bcd version             print the version

Exit codes: 0 stopped, 1 failed, 2 wrong usage or configuration, 3 the join was refused for good,
4 the host was removed or its certificate has expired.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "run":
		return serve(ctx, args[1:], stderr)
	case "version":
		_, _ = fmt.Fprintln(stdout, version)
		return exitOK
	case "help", "-h", "--help":
		_, _ = io.WriteString(stdout, usage)
		return exitOK
	default:
		_, _ = io.WriteString(stderr, usage)
		return exitUsage
	}
}

func serve(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("bcd run", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/bcd/config.json", "the configuration `file`")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return exitUsage
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	cfg, err := agent.LoadConfig(*path)
	if err != nil {
		log.ErrorContext(ctx, "bcd cannot start", "error", err)
		return exitUsage
	}
	log.InfoContext(ctx, "bcd starts", "version", version, "server", cfg.Server)
	err = agent.New(cfg, version, log).Run(ctx)
	if err == nil {
		log.InfoContext(ctx, "bcd stops")
		return exitOK
	}
	log.ErrorContext(ctx, "bcd ends", "error", err)
	if _, refused := errors.AsType[*agent.RefusedError](err); refused {
		return exitRefused
	}
	if errors.Is(err, agent.ErrRemoved) || errors.Is(err, agent.ErrExpired) {
		return exitRemoved
	}
	return exitFailed
}
