// Command server is a whole HashiCorp Vault in memory, with the engines kv (both versions) and the login approle, for the tests of
// what reads secrets from one. It prints one line of JSON when it is ready, with its address and root token, and serves until it is killed.
//
// It is a module of its own so that the product depends on none of it. Vault is licensed under the Business Source License 1.1, which
// allows this: it is run, unchanged, by tests, and is part of nothing that is shipped.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	core, rootToken, err := open(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{Address: listener.Addr().String(), TLSDisable: true},
	})
	ready := map[string]string{"msg": "ready", "address": "http://" + listener.Addr().String(), "rootToken": rootToken}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// open makes a Vault with nothing in it, and unseals it.
func open(ctx context.Context) (core *vault.Core, rootToken string, err error) {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return nil, "", err
	}
	core, err = vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		Logger:             logger,
		DisableMlock:       true,
		LogicalBackends:    map[string]logical.Factory{"kv": kv.Factory},
		CredentialBackends: map[string]logical.Factory{"approle": approle.Factory},
		BuiltinRegistry:    builtin{},
	})
	if err != nil {
		return nil, "", err
	}
	one := vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	made, err := core.Initialize(ctx, &vault.InitParams{BarrierConfig: &one, RecoveryConfig: &vault.SealConfig{}})
	if err != nil {
		return nil, "", err
	}
	if _, err := core.Unseal(made.SecretShares[0]); err != nil {
		return nil, "", err
	}
	return core, made.RootToken, nil
}

// builtin lists the plugins that there are, of the many that Vault could have.
type builtin struct{}

func (builtin) Contains(name string, kind consts.PluginType) bool {
	switch kind {
	case consts.PluginTypeSecrets:
		return name == "kv"
	case consts.PluginTypeCredential:
		return name == "approle"
	default:
		return false
	}
}

func (b builtin) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	factory := logical.Factory(kv.Factory)
	if kind == consts.PluginTypeCredential {
		factory = approle.Factory
	}
	return func() (any, error) { return factory, nil }, b.Contains(name, kind)
}

func (builtin) Keys(kind consts.PluginType) []string {
	switch kind {
	case consts.PluginTypeSecrets:
		return []string{"kv"}
	case consts.PluginTypeCredential:
		return []string{"approle"}
	default:
		return nil
	}
}

func (b builtin) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, b.Contains(name, kind)
}

func (builtin) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
