// Command compute-api is the provider-accounts server of a compute control plane, and its admin commands.
//
// It owns the wiring: configuration, which drivers exist, and what is started in which order. It refuses to hold any rule of a noun.
// The invariant: what is wrong with the configuration is said, with its key, before anything is started.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"better/compute/internal/problem"
)

// version is set by the linker.
var version = "dev" //nolint:gochecknoglobals // only the linker can set it

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compute-api:", describe(err))
		code := 1
		if _, ok := errors.AsType[configError](err); ok {
			code = 2
		}
		os.Exit(code) //nolint:gocritic // nothing that was deferred matters any more
	}
}

// describe adds to an error what its details say, each on a line of its own.
func describe(err error) string {
	details := problem.From(err).Details
	var text strings.Builder
	text.WriteString(err.Error())
	issues, _ := details["issues"].([]problem.Issue)
	for _, issue := range issues {
		fmt.Fprintf(&text, "\n  %s %s", issue.Path, issue.Message)
	}
	if blockers, ok := details["blockers"]; ok {
		fmt.Fprintf(&text, "\n  in use by %v", blockers)
	}
	return text.String()
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "compute-api",
		Short:         "The provider-accounts server of a compute control plane",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		serveCommand(), devCommand(), migrateCommand(), roleCommand(), tokenCommand(), auditCommand(), pkiCommand(), providerCommand(), secretCommand(), simCommand(),
		healthcheckCommand(), versionCommand(),
	)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}
