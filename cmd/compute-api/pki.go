package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"better/compute/internal/pki"
)

func pkiCommand() *cobra.Command {
	var path string
	var now bool
	cmd := &cobra.Command{Use: "pki", Short: "Manage the certificate authority of the agents"}
	cmd.PersistentFlags().StringVar(&path, "config", "", "the configuration file (YAML)")
	cmd.AddCommand(&cobra.Command{
		Use: "init", Short: "Make a certificate authority in pki.dir; never replaces one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(defaultConfig(), path, os.Environ())
			if err != nil {
				return err
			}
			if c.Bootstrap == nil {
				return configError{"bootstrap.trustDomain: is needed to make a certificate authority"}
			}
			ca, err := pki.Init(c.pkiDir(), c.Bootstrap.TrustDomain)
			if err != nil {
				return err
			}
			return printPins(cmd, ca)
		},
	})
	rotate := &cobra.Command{Use: "rotate", Short: "Replace the authority in three steps, a day apart, while everything runs"}
	rotate.PersistentFlags().BoolVar(&now, "now", false, "do not wait for the hosts to renew; those that have not must be installed again")
	step := func(use, short string, do func(dir string) error) {
		rotate.AddCommand(&cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(defaultConfig(), path, os.Environ())
			if err != nil {
				return err
			}
			if err := do(c.pkiDir()); err != nil {
				return err
			}
			ca, err := pki.Load(c.pkiDir())
			if err != nil {
				return err
			}
			return printPins(cmd, ca)
		}})
	}
	step("begin", "Make a successor and trust it beside the present authority", pki.BeginRotation)
	step("switch", "Let the successor sign", func(dir string) error { return pki.SwitchRotation(dir, now) })
	step("finish", "Trust the successor alone", func(dir string) error { return pki.FinishRotation(dir, now) })
	cmd.AddCommand(rotate)
	return cmd
}

// printPins prints the key of each authority that is trusted, the signing one first.
func printPins(cmd *cobra.Command, ca *pki.CA) error {
	for pin := range strings.SplitSeq(ca.Pin(), ",") {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "pin", pin); err != nil {
			return err
		}
	}
	return nil
}
