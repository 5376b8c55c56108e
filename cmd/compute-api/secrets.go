package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"better/compute/identity"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/provider"
	"better/compute/secret"
	"better/compute/secret/vault"
)

var (
	variablePattern  = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,255}\z`)
	vaultPathPattern = regexp.MustCompile(`\A[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*\z`)
)

func (s secretsConfig) problems(add func(key, format string, args ...any)) {
	for i, name := range s.Env.Allow {
		if !variablePattern.MatchString(name) {
			add(fmt.Sprintf("secrets.env.allow[%d]", i), "%q is not the name of a variable", name)
		}
	}
	named := map[[2]string]bool{}
	for i, v := range s.Env.Tenants {
		key := fmt.Sprintf("secrets.env.tenants[%d]", i)
		if !input.ValidTenant(v.TenantID) {
			add(key+".tenantId", "%q is not the id of a tenant", v.TenantID)
		}
		if _, err := provider.ParseReference("env://" + v.Name); err != nil {
			add(key+".name", "%q cannot stand in a reference", v.Name)
		}
		if !variablePattern.MatchString(v.Variable) {
			add(key+".variable", "%q is not the name of a variable", v.Variable)
		}
		if at := [2]string{v.TenantID, v.Name}; named[at] {
			add(key+".name", "%s has this name already", v.TenantID)
		} else {
			named[at] = true
		}
	}
	if s.Store.KeyFile == "" && len(s.Store.OldKeyFiles) > 0 {
		add("secrets.store.oldKeyFiles", "are of no use without secrets.store.keyFile")
	}
	if s.Vault != nil {
		s.Vault.problems(func(key, format string, args ...any) { add("secrets.vault."+key, format, args...) })
	}
}

func (v *vaultConfig) problems(add func(key, format string, args ...any)) {
	if err := identity.CheckURL(v.Address); err != nil {
		add("address", "%s", err)
	} else if u, err := url.Parse(v.Address); err != nil || strings.Trim(u.Path, "/") != "" {
		add("address", "must be without a path")
	}
	if v.Engine != 0 && v.Engine != int(vault.KV1) && v.Engine != int(vault.KV2) {
		add("engine", "must be 1 or 2, not %d", v.Engine)
	}
	for key, path := range map[string]string{"mount": cmp.Or(v.Mount, "secret"), "path": cmp.Or(v.Path, "compute"), "namespace": cmp.Or(v.Namespace, "none")} {
		if !vaultPathPattern.MatchString(path) || strings.Contains(path, "..") {
			add(key, "%q is not a path without slashes at its ends", path)
		}
	}
	switch role := v.AppRole; {
	case (role == nil) == (v.TokenFile == ""):
		add("tokenFile", "must be there, or secrets.vault.appRole, and not both")
	case role != nil && (role.RoleIDFile == "" || role.SecretIDFile == ""):
		add("appRole", "must have roleIdFile and secretIdFile")
	case role != nil && role.Mount != "" && !vaultPathPattern.MatchString(role.Mount):
		add("appRole.mount", "%q is not a path without slashes at its ends", role.Mount)
	}
}

// load reads the keys, and says all that is wrong with them.
func (s secretsConfig) load() (d secret.Deps, problems configError) {
	d = secret.Deps{EnvAllow: s.Env.Allow, EnvOf: s.Env.byTenant(), LookupEnv: os.LookupEnv}
	var err error
	if s.Store.KeyFile != "" {
		if d.Key, err = secret.LoadKey(s.Store.KeyFile); err != nil {
			problems = append(problems, "secrets.store.keyFile: "+err.Error())
		}
	}
	for i, path := range s.Store.OldKeyFiles {
		key, err := secret.LoadKey(path)
		if err != nil {
			problems = append(problems, fmt.Sprintf("secrets.store.oldKeyFiles[%d]: %s", i, err))
		}
		d.OldKeys = append(d.OldKeys, key)
	}
	if s.Vault != nil {
		if d.Vault, err = vault.New(s.Vault.options()); err != nil {
			problems = append(problems, "secrets.vault: "+err.Error())
		}
	}
	return d, problems
}

func (e secretsEnvConfig) byTenant() map[string]map[string]string {
	variables := map[string]map[string]string{}
	for _, v := range e.Tenants {
		if variables[v.TenantID] == nil {
			variables[v.TenantID] = map[string]string{}
		}
		variables[v.TenantID][v.Name] = v.Variable
	}
	return variables
}

func (v *vaultConfig) options() vault.Options {
	login := vault.Login{TokenFile: v.TokenFile}
	if role := v.AppRole; role != nil {
		login = vault.Login{AppRole: cmp.Or(role.Mount, "approle"), RoleIDFile: role.RoleIDFile, SecretIDFile: role.SecretIDFile}
	}
	return vault.Options{
		Address: strings.TrimSuffix(v.Address, "/"), Namespace: v.Namespace, CAFile: v.CAFile,
		Engine: cmp.Or(vault.Engine(v.Engine), vault.KV2), Mount: cmp.Or(v.Mount, "secret"), Path: cmp.Or(v.Path, "compute"), Login: login,
	}
}

func secretCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{Use: "secret", Short: "Seal the built-in store of secrets with a new key"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	cmd.AddCommand(&cobra.Command{
		Use: "reseal", Short: "Seal with secrets.store.keyFile what a key of secrets.store.oldKeyFiles has sealed; exit 0 when nothing else is left",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(defaultConfig(), path, os.Environ())
			if err != nil {
				return err
			}
			deps, problems := c.Secrets.load()
			if len(problems) > 0 {
				return problems
			}
			return withDatabase(cmd, path, func(ctx context.Context, db *postgres.DB) error {
				deps.DB = db
				done, err := secret.New(deps).Reseal(ctx)
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "resealed=%d unopened=%d\n", done.Done, done.Unopened)
				if err == nil && done.Unopened > 0 {
					err = fmt.Errorf("%d secrets were sealed with a key that is not there: they have to be written again", done.Unopened)
				}
				return err
			})
		},
	})
	return cmd
}
