package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// trial is an account that nobody stores.
type trial struct{ provider, config, serverConfig string }

func providerCommand() *cobra.Command {
	var t trial
	cmd := &cobra.Command{
		Use: "provider", Short: "Try a provider's credentials by hand, without a server",
		Long: "Calls a provider once, with the account's config as it would be stored: a JSON file, or - for standard input. Its secret\n" +
			"references must be env://NAME, which are read from this command's own environment.",
	}
	cmd.PersistentFlags().StringVar(&t.provider, "provider", "", "the provider, such as hetzner-cloud")
	cmd.PersistentFlags().StringVar(&t.config, "config", "", "the account's config (JSON), or -")
	cmd.PersistentFlags().StringVar(&t.serverConfig, "server-config", "", "a server's configuration file (YAML), whose entry for the provider counts")
	for _, flag := range []string{"provider", "config"} {
		_ = cmd.MarkPersistentFlagRequired(flag)
	}
	add := func(use, short string, do func(context.Context, provider.Client, io.Writer) error) {
		cmd.AddCommand(&cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd, do)
		}})
	}
	add("check", "Ask whether the provider takes the credentials", func(ctx context.Context, c provider.Client, out io.Writer) error {
		if err := c.Check(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "ok")
		return err
	})
	add("offers", "List what the provider sells", printOffers)
	add("machines", "List the account's machines", printMachines)
	return cmd
}

const trialTime = 2 * time.Minute

func (t trial) run(cmd *cobra.Command, do func(context.Context, provider.Client, io.Writer) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), trialTime)
	defer cancel()
	client, err := t.open(ctx, cmd.InOrStdin())
	if err != nil {
		return t.explained(err)
	}
	defer func() { _ = client.Close() }()
	return t.explained(do(ctx, client, cmd.OutOrStdout()))
}

func (t trial) open(ctx context.Context, in io.Reader) (provider.Client, error) {
	driver, err := t.driver()
	if err != nil {
		return nil, err
	}
	config, err := readAll(t.config, in)
	if err != nil {
		return nil, err
	}
	registry, err := provider.NewRegistry(driver)
	if err != nil {
		return nil, err
	}
	if err := registry.ValidateConfig(t.provider, config).Err(); err != nil {
		return nil, err
	}
	return driver.Open(ctx, provider.Account{ID: "pacct_trial", Config: config, Secret: secretFromEnv, Inventory: noInventory{}})
}

func (t trial) driver() (provider.Driver, error) {
	entry := providerEntry{Name: t.provider}
	if t.serverConfig != "" {
		c, err := loadConfig(defaultConfig(), t.serverConfig, os.Environ())
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(c.Providers, func(e providerEntry) bool { return e.Name == t.provider }); i >= 0 {
			entry = c.Providers[i]
		}
	}
	newDriver, known := drivers()[t.provider]
	if !known {
		return nil, problem.New(problem.InvalidInput, "there is no driver %q", t.provider)
	}
	driver, err := newDriver(entry)
	if err != nil {
		return nil, fmt.Errorf("%s needs a setting of the server's (--server-config): %w", t.provider, err)
	}
	return driver, nil
}

func readAll(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// secretFromEnv reads any variable: whoever calls the command has its environment anyhow.
func secretFromEnv(_ context.Context, reference string) (string, error) {
	r, err := provider.ParseReference(reference)
	if err != nil || r.Scheme != provider.EnvScheme {
		return "", provider.Errorf(provider.SecretUnresolved, "Here only env:// references can be resolved, and %s is none.", reference)
	}
	value := strings.TrimSpace(os.Getenv(r.Name))
	if value == "" {
		return "", provider.Errorf(provider.SecretUnresolved, "The variable %s is not set.", r.Name)
	}
	return value, nil
}

// noInventory is one that nothing was ever taken from.
type noInventory struct{}

func (noInventory) Taken(context.Context, []provider.KeyedMachine) (map[string]bool, error) {
	return nil, nil
}

func (noInventory) Claimed(context.Context, string) (string, error) { return "", nil }

func (noInventory) Take(context.Context, string, []provider.KeyedMachine) (string, error) {
	return "", provider.Errorf(provider.Unsupported, "Nothing is ordered here.")
}

func (noInventory) Drop(context.Context, string) error { return nil }

// explained says what a caller of the API would be told.
func (t trial) explained(err error) error {
	if _, ok := errors.AsType[*provider.Error](err); !ok {
		return err
	}
	p := problem.From(provider.Problem(t.provider, err))
	var text strings.Builder
	text.WriteString(p.Message)
	for _, detail := range []string{"reason", "retryAfterSeconds", "providerCode", "requestId"} {
		if v, ok := p.Details[detail]; ok {
			fmt.Fprintf(&text, "\n  %s: %v", detail, v)
		}
	}
	return errors.New(text.String())
}

func printOffers(ctx context.Context, c provider.Client, out io.Writer) error {
	offers, err := c.Offers(ctx)
	if err == nil {
		offers, err = provider.CheckOffers(offers)
	}
	if err != nil {
		return err
	}
	provider.SortOffers(offers)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tKIND\tREGION\tVCPU\tGIB\tGPU\tHOURLY\tMONTHLY\tCURRENCY\tAVAILABILITY")
	for _, o := range offers {
		price := cmp.Or(o.Price, &model.Price{Currency: "-"})
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o.ID, o.Kind, o.Region, known(o.VCPU), known(o.MemoryGiB), gpuText(o.GPU),
			known(price.Hourly), known(price.Monthly), price.Currency, o.Availability)
	}
	return w.Flush()
}

func gpuText(g *model.GPU) string {
	if g == nil {
		return "-"
	}
	return fmt.Sprintf("%d x %s", g.Count, g.Model)
}

func known[T any](v *T) string {
	if v == nil {
		return "-"
	}
	text, _ := json.Marshal(*v) // numbers and text
	return string(bytes.Trim(text, `"`))
}

func printMachines(ctx context.Context, c provider.Client, out io.Writer) error {
	machines, err := c.Machines(ctx)
	if err == nil {
		machines, err = provider.CheckMachines(machines)
	}
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tNAME\tKIND\tREGION\tSTATUS\tADDRESSES\tOFFER")
	for _, m := range machines {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Name, m.Kind, m.Region, m.Status, strings.Join(m.Addresses, " "), known(m.OfferID))
	}
	return w.Flush()
}
