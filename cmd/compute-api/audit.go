package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"better/compute/audit"
	"better/compute/internal/postgres"
)

func auditCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "audit", Short: "Verify the audit log, or print the heads of its chains"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	cmd.AddCommand(auditVerifyCommand(&path), &cobra.Command{
		Use: "heads", Short: "Print the head of each tenant's chain as a line of JSON, to be kept outside of the database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, path, func(ctx context.Context, db *postgres.DB) error {
				lines := json.NewEncoder(cmd.OutOrStdout())
				return audit.EachHead(ctx, db, func(h audit.Head) error { return lines.Encode(h) })
			})
		},
	})
	return cmd
}

func auditVerifyCommand(path *string) *cobra.Command {
	var tenant, heads string
	cmd := &cobra.Command{
		Use: "verify", Short: "Compute the hash chains of the audit log again, and say what does not fit; exit 0 when all does", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := readHeads(heads)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("tenant") {
				in.TenantID = &tenant
			}
			return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
				return verifyAudit(ctx, db, in, cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this tenant's; empty: what belongs to no tenant")
	cmd.Flags().StringVar(&heads, "heads", "", "a file of lines that `audit heads` printed or the server logged, to be held against the chains")
	return cmd
}

func readHeads(path string) (in audit.VerifyInput, err error) {
	if path == "" {
		return in, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return in, fmt.Errorf("--heads: %w", err)
	}
	defer f.Close()
	if in.Heads, err = audit.ReadHeads(f); err != nil {
		return in, fmt.Errorf("--heads: %w", err)
	}
	return in, nil
}

func verifyAudit(ctx context.Context, db *postgres.DB, in audit.VerifyInput, out io.Writer) error {
	sum, err := audit.Verify(ctx, db, in, func(f audit.Finding) error {
		_, err := fmt.Fprintln(out, f)
		return err
	})
	if err != nil {
		return err
	}
	if err := sawSomething(in, sum); err != nil {
		return err
	}
	verdict := "ok"
	if sum.Findings > 0 {
		verdict = fmt.Sprintf("findings=%d", sum.Findings)
	}
	_, err = fmt.Fprintf(out, "audit verify tenants=%d rows=%d unsealed=%d heads=%d %s\n", sum.Tenants, sum.Rows, sum.Unsealed, sum.Heads, verdict)
	if err != nil {
		return err
	}
	if sum.Findings > 0 {
		return fmt.Errorf("the audit log does not fit its chains in %d places", sum.Findings)
	}
	return nil
}

// sawSomething refuses to call well what was not looked at.
func sawSomething(in audit.VerifyInput, sum audit.Summary) error {
	switch {
	case in.TenantID == nil && sum.Rows+sum.Unsealed+sum.Findings == 0:
		return errors.New("the audit log is empty")
	case in.TenantID == nil:
		return nil
	case in.Heads != nil && sum.Heads == 0:
		return fmt.Errorf("--heads: there is no head of the tenant %q in it", *in.TenantID)
	case *in.TenantID != "" && sum.Rows+sum.Unsealed+sum.Findings == 0:
		return fmt.Errorf("--tenant: the audit log has nothing of %q", *in.TenantID)
	}
	return nil
}
