package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/embedded"
	"better/compute/migrations"
	"better/compute/provider/sim/cloud"
)

// withDatabase runs fn on the database of the configuration, as its owner.
func withDatabase(cmd *cobra.Command, path string, fn func(ctx context.Context, db *postgres.DB) error) (err error) {
	c, err := loadConfig(defaultConfig(), path, os.Environ())
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	own, db, err := openAnyDatabase(ctx, c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer func() {
		db.Close()
		if own != nil {
			err = errors.Join(err, own.Stop(context.WithoutCancel(ctx)))
		}
	}()
	return fn(ctx, db)
}

// openAnyDatabase opens the database of a configuration as its owner, also while a server that runs an embedded one has it.
func openAnyDatabase(ctx context.Context, c config, log *slog.Logger) (*embedded.Server, *postgres.DB, error) {
	var own *embedded.Server
	url := cmp.Or(c.Database.MigrationsURL, c.Database.URL)
	if url == "" {
		var err error
		if own, url, err = findEmbedded(ctx, c.StateDir, log); err != nil {
			return nil, nil, err
		}
	}
	db, err := openWith(ctx, postgres.Options{URL: url, AsOwner: true, MaxConns: c.Database.MaxConns})
	if err != nil && own != nil {
		err = errors.Join(err, own.Stop(context.WithoutCancel(ctx)))
	}
	return own, db, err
}

// findEmbedded starts the embedded database, unless a server has it.
func findEmbedded(ctx context.Context, stateDir string, log *slog.Logger) (own *embedded.Server, url string, err error) {
	own, err = embedded.Start(ctx, embedded.Options{StateDir: stateDir, Log: log})
	if errors.Is(err, embedded.ErrInUse) {
		url, err = embedded.URL(stateDir)
		return nil, url, err
	}
	if err != nil {
		return nil, "", err
	}
	return own, own.URL(), nil
}

func migrateCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "migrate", Short: "Change the database's schema, or show how it stands"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	add := func(use, short string, fn func(ctx context.Context, db *postgres.DB, out io.Writer) error) {
		cmd.AddCommand(&cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, path, func(ctx context.Context, db *postgres.DB) error { return fn(ctx, db, cmd.OutOrStdout()) })
		}})
	}
	add("up", "Apply every migration that is not applied", func(ctx context.Context, db *postgres.DB, _ io.Writer) error {
		return postgres.Migrate(ctx, db)
	})
	add("status", "List the migrations", printMigrations)
	cmd.AddCommand(migrateDownCommand(&path))
	return cmd
}

// migrateDownCommand takes back one migration. That cannot be undone, so it wants to hear its name first.
func migrateDownCommand(path *string) *cobra.Command {
	var confirmed string
	cmd := &cobra.Command{
		Use: "down", Short: "Take back the newest migration, with its data", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
				return migrateDown(ctx, db, confirmed, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&confirmed, "confirm", "", "the name of the newest migration; without it nothing is changed")
	return cmd
}

func migrateDown(ctx context.Context, db *postgres.DB, confirmed string, out io.Writer) error {
	newest, err := postgres.NewestMigration(ctx, db)
	if err != nil {
		return err
	}
	if newest == "" {
		return errors.New("no migration is applied")
	}
	if confirmed != newest {
		return fmt.Errorf("nothing was changed. The newest migration is %s; what is lost with it for good: %s.\n"+
			"Stop every server, make a backup, then repeat with --confirm %s", newest, migrations.Loses(newest), newest)
	}
	if err := postgres.MigrateDown(ctx, db, newest); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "took back %s; lost: %s\n", newest, migrations.Loses(newest))
	return err
}

func printMigrations(ctx context.Context, db *postgres.DB, out io.Writer) error {
	all, err := postgres.MigrationStatus(ctx, db)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, m := range all {
		state := "pending"
		if m.Applied {
			state = "applied"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", m.Name, state)
	}
	return w.Flush()
}

// simCommand runs the simulated cloud as a process of its own, so that server and cloud can be stopped apart.
func simCommand() *cobra.Command {
	var listen, dir, agent string
	var delay time.Duration
	cmd := &cobra.Command{
		Use: "sim", Short: "Run the simulated cloud alone", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cloud.Serve(cmd.Context(), listen, cloud.Options{
				Dir: dir, AgentBinary: agent, ReadyDelay: delay, InstallDelay: delay, Log: newLog(cmd),
			})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8090", "where to listen")
	cmd.Flags().StringVar(&dir, "dir", "sim", "where to keep ledger and machines")
	cmd.Flags().StringVar(&agent, "agent", "", "the bcd binary that machines run")
	cmd.Flags().DurationVar(&delay, "delay", time.Second, "how long delivery and install take")
	return cmd
}

func healthcheckCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Ask a running server whether it is ready; exit 0 when it is", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("the server at %s is not ready: %s", url, resp.Status)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8080", "where the server is")
	return cmd
}
