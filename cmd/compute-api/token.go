package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"better/compute/apitoken"
	"better/compute/internal/postgres"
	"better/compute/model"
)

// operator is who admin commands are in the audit log.
const operator = "service:compute-api"

func tokenCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "token", Short: "Make, list or revoke API tokens without a caller"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	cmd.AddCommand(tokenCreateCommand(&path), tokenListCommand(&path), tokenRevokeCommand(&path))
	return cmd
}

func tokenCreateCommand(path *string) *cobra.Command {
	var service, tenant, description string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token, and print it this once", Args: cobra.NoArgs,
		Long: "Makes a token for service:<tenant>/<name>, or without a tenant for service:<name>, and prints it on standard output.\n" +
			"Roles are granted to that subject (compute-api role grant).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := model.CreateAPITokenInput{Name: service, Description: &description}
			if cmd.Flags().Changed("tenant") {
				in.TenantID = &tenant
			}
			if cmd.Flags().Changed("expires") {
				end := model.NewTime(time.Now().Add(expires))
				in.ExpiresAt = &end
			}
			return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
				created, err := apitoken.Issue(ctx, db, operator, in)
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "made", created.APIToken.ID, "for", created.APIToken.Subject)
				_, err = fmt.Fprintln(cmd.OutOrStdout(), created.Token)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&service, "service", "", "the name of the service that will use it")
	cmd.Flags().StringVar(&tenant, "tenant", "", "the tenant that owns it; without, the fleet")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().DurationVar(&expires, "expires", 0, "when it ends by itself, such as 720h; without, never")
	_ = cmd.MarkFlagRequired("service")
	return cmd
}

func tokenListCommand(path *string) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List all tokens, without the tokens themselves", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
			tokens, err := apitoken.List(ctx, db)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "ID\tSUBJECT\tCREATED\tEXPIRES\tLAST USED\tREVOKED\tDESCRIPTION")
			for _, t := range tokens {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Subject, day(&t.CreatedAt), day(t.ExpiresAt), day(t.LastUsedAt), day(t.RevokedAt), t.Description)
			}
			return w.Flush()
		})
	}}
}

func day(t *model.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func tokenRevokeCommand(path *string) *cobra.Command {
	return &cobra.Command{Use: "revoke ID", Short: "Revoke a token", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
			revoked, err := apitoken.End(ctx, db, operator, args[0])
			if err != nil {
				return err
			}
			word := "revoked"
			if !revoked {
				word = "was revoked already"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), word)
			return err
		})
	}}
}
