package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/model"
)

func roleCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "role", Short: "Change roles and their bindings without a caller, or list them"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	cmd.AddCommand(
		bindingCommand(&path, "grant", "Make a binding", "granted", "was granted already", authz.Grant),
		bindingCommand(&path, "revoke", "Remove a binding", "revoked", "there was no such binding", authz.Revoke),
		bindingListCommand(&path), roleDefineCommand(&path), roleUndefineCommand(&path), roleListCommand(&path),
	)
	return cmd
}

func bindingCommand(path *string, use, short, done, idle string, change func(context.Context, *postgres.DB, string, model.RoleBinding) (bool, error)) *cobra.Command {
	var effect string
	cmd := &cobra.Command{Use: use + " SUBJECT ROLE OBJECT", Short: short, Args: cobra.ExactArgs(3), RunE: func(cmd *cobra.Command, args []string) error {
		b := bindingConfig{Subject: args[0], Role: args[1], Object: args[2], Effect: effect}.binding()
		return sayChange(cmd, *path, done, idle, func(ctx context.Context, db *postgres.DB) (bool, error) {
			return change(ctx, db, operator, b)
		})
	}}
	cmd.Flags().StringVar(&effect, "effect", "allow", "allow or deny")
	return cmd
}

// sayChange makes a change and prints whether there was anything to change.
func sayChange(cmd *cobra.Command, path, done, idle string, change func(context.Context, *postgres.DB) (bool, error)) error {
	return withDatabase(cmd, path, func(ctx context.Context, db *postgres.DB) error {
		changed, err := change(ctx, db)
		if err != nil {
			return err
		}
		word := done
		if !changed {
			word = idle
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), word)
		return err
	})
}

func bindingListCommand(path *string) *cobra.Command {
	var subject string
	cmd := &cobra.Command{Use: "list", Short: "List bindings", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
			bindings, err := authz.List(ctx, db, subject)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			for _, b := range bindings {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Subject, b.Role, b.Object, b.Effect)
			}
			return w.Flush()
		})
	}}
	cmd.Flags().StringVar(&subject, "subject", "", "only this subject's")
	return cmd
}

func roleDefineCommand(path *string) *cobra.Command {
	var description string
	cmd := &cobra.Command{
		Use: "define NAME PERMISSION...", Short: "Define a role, or change one for everybody who is bound to it", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := model.DefineRoleInput{Name: args[0], Description: &description}
			for _, p := range args[1:] {
				in.Permissions = append(in.Permissions, model.Permission(p))
			}
			return sayChange(cmd, *path, "defined", "was defined so already", func(ctx context.Context, db *postgres.DB) (bool, error) {
				return authz.Define(ctx, db, operator, in)
			})
		},
	}
	cmd.Flags().StringVar(&description, "description", "", "what the role is for")
	return cmd
}

func roleUndefineCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use: "undefine NAME", Short: "Delete a defined role to which nobody is bound", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sayChange(cmd, *path, "deleted", "there was no such role", func(ctx context.Context, db *postgres.DB) (bool, error) {
				return authz.Undefine(ctx, db, operator, args[0])
			})
		},
	}
}

func roleListCommand(path *string) *cobra.Command {
	return &cobra.Command{Use: "roles", Short: "List roles, with what each allows", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, *path, func(ctx context.Context, db *postgres.DB) error {
			roles, err := authz.ListRoles(ctx, db)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			for _, r := range roles {
				permissions := make([]string, len(r.Permissions))
				for i, p := range r.Permissions {
					permissions[i] = string(p)
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", r.Name, strings.Join(permissions, " "), r.Description)
			}
			return w.Flush()
		})
	}}
}
