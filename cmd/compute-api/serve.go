package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server for production",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(defaultConfig(), path, os.Environ())
			if err != nil {
				return err
			}
			if problems := c.productionProblems(); len(problems) > 0 {
				return problems
			}
			a, err := newApp(cmd.Context(), c, newLog(cmd))
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), func(ctx context.Context) error {
				a.log.InfoContext(ctx, "ready", "listen", a.apiListener.Addr().String())
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the configuration file (YAML)")
	return cmd
}

// newLog writes JSON lines to standard error, so that standard output stays for what a command answers.
func newLog(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
}
