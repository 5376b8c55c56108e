// Package secret owns the values that secret references stand for: the type that never shows one, the backends that a reference
// is resolved from, and the built-in store.
//
// It refuses to know what a secret is for. The invariant: a value is in clear only in memory, only for the call that needs
// it, and never in a statement, a log line, an error or an answer.
package secret

import (
	"context"
	"errors"
	"strings"

	"better/compute/authz"
	"better/compute/internal/postgres"
	"better/compute/provider"
	"better/compute/secret/vault"
)

// Deps are what the service works with.
type Deps struct {
	DB    *postgres.DB
	Authz *authz.Decider
	// Key seals the built-in store. Without one, Put gives INVALID_CONFIG and no secret:// reference resolves.
	Key *Key
	// OldKeys open what they have sealed, until Reseal has sealed it with Key.
	OldKeys []*Key
	// Vault is where vault:// references are resolved. Without one, none is.
	Vault *vault.Client
	// EnvAllow lists the variables that env:// references of every tenant may read; empty allows none.
	EnvAllow []string
	// EnvOf gives, for single tenants, the variable that each name of an env:// reference stands for, before EnvAllow is looked at.
	EnvOf map[string]map[string]string
	// LookupEnv reads a variable: os.LookupEnv.
	LookupEnv func(name string) (value string, found bool)
}

// Service resolves references and keeps the built-in store. Safe for concurrent use.
type Service struct {
	db        *postgres.DB
	authz     *authz.Decider
	key       *Key
	oldKeys   []*Key
	vault     *vault.Client
	env       map[string]bool
	envOf     map[string]map[string]string
	lookupEnv func(string) (string, bool)
}

// New makes the service.
func New(d Deps) *Service {
	s := &Service{
		db: d.DB, authz: d.Authz, key: d.Key, oldKeys: d.OldKeys, vault: d.Vault, env: map[string]bool{}, envOf: d.EnvOf, lookupEnv: d.LookupEnv,
	}
	for _, name := range d.EnvAllow {
		s.env[name] = true
	}
	return s
}

// Resolve finds the value of a reference for the tenant, now: nothing is kept. There is no decision here, since what a tenant's
// accounts may refer to was decided when they were written. But where the context may not see the tenant's rows, nothing of the tenant's is
// there, wherever it is kept. Every failure but the end of ctx is a *provider.Error of class SecretUnresolved, or Unavailable while the
// database or the vault is away, which names the reference and never shows a value.
func (s *Service) Resolve(ctx context.Context, tenantID, reference string) (Value, error) {
	ref, err := provider.ParseReference(reference)
	if err != nil {
		return Value{}, provider.Errorf(provider.SecretUnresolved, "The config holds something else where a secret reference belongs.")
	}
	owner, err := s.ownerSeen(ctx, tenantID)
	if err != nil {
		return Value{}, unreadable(ctx, ref, err)
	}
	text, err := s.lookup(ctx, owner, ref)
	if err != nil {
		return Value{}, err
	}
	text = strings.Trim(text, asciiSpace)
	switch {
	case text == "":
		return Value{}, unresolved(ref, "is empty")
	case !isPlainText(text):
		return Value{}, unresolved(ref, "has control or non-ASCII characters")
	}
	return NewValue(text), nil
}

// nobody is a tenant that has nothing: no tenant's id is empty.
const nobody = ""

// ownerSeen is the tenant, or nobody where the context may not see the tenant's rows: the wall that the database is between tenants, for what
// it does not keep.
func (s *Service) ownerSeen(ctx context.Context, tenantID string) (string, error) {
	scope, err := s.db.ScopeOf(ctx)
	if err != nil || !scope.Contains(tenantID) {
		return nobody, err
	}
	return tenantID, nil
}

// unreadable is the end of ctx, or says that it may pass.
func unreadable(ctx context.Context, ref provider.Reference, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return provider.Errorf(provider.Unavailable, "The secret %s cannot be read right now.", ref).Because(err)
}

func (s *Service) lookup(ctx context.Context, tenantID string, ref provider.Reference) (string, error) {
	switch ref.Scheme {
	case provider.EnvScheme:
		return s.lookupVariable(tenantID, ref)
	case provider.SecretScheme:
		return s.lookupStored(ctx, tenantID, ref)
	default:
		return s.lookupInVault(ctx, tenantID, ref)
	}
}

func (s *Service) lookupInVault(ctx context.Context, tenantID string, ref provider.Reference) (string, error) {
	if s.vault == nil {
		return "", unresolved(ref, "cannot be read: this server has no vault configured")
	}
	text, err := s.vault.Read(ctx, tenantID, ref.Name, ref.Field)
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, vault.ErrAbsent):
		return "", unresolved(ref, "is not in the vault below the tenant's prefix, or is no text")
	case errors.Is(err, vault.ErrDenied):
		return "", unresolved(ref, "cannot be read: the vault does not let this server")
	default:
		return "", unreadable(ctx, ref, err)
	}
}

// lookupVariable says the same of a variable that is not allowed and of one that is not set, so that a reference does not probe
// the server's environment.
func (s *Service) lookupVariable(tenantID string, ref provider.Reference) (string, error) {
	variable, allowed := s.envOf[tenantID][ref.Name]
	if !allowed {
		variable, allowed = ref.Name, s.env[ref.Name]
	}
	if allowed && s.lookupEnv != nil {
		if text, found := s.lookupEnv(variable); found {
			return text, nil
		}
	}
	return "", unresolved(ref, "is not set, or this server does not allow it")
}

func (s *Service) lookupStored(ctx context.Context, tenantID string, ref provider.Reference) (string, error) {
	if s.key == nil {
		return "", unresolved(ref, "cannot be read: this server has no key for its secret store")
	}
	row, found, err := readSealed(ctx, s.db, tenantID, ref.Name)
	switch {
	case err != nil:
		return "", unreadable(ctx, ref, err)
	case !found:
		return "", unresolved(ref, "is not in the tenant's secret store")
	}
	text, err := s.open(tenantID, ref.Name, row)
	if errors.Is(err, errOtherKey) {
		return "", unresolved(ref, "was sealed with another key than this server has")
	}
	if err != nil {
		return "", unresolved(ref, "cannot be decrypted: what is stored was changed").Because(err)
	}
	return text, nil
}

// open finds the key that the row was sealed with.
func (s *Service) open(tenantID, name string, row sealedRow) (text string, err error) {
	for _, key := range append([]*Key{s.key}, s.oldKeys...) {
		text, err = key.open(tenantID, name, row)
		if !errors.Is(err, errOtherKey) {
			return text, err
		}
	}
	return "", err
}

func unresolved(ref provider.Reference, why string) *provider.Error {
	return provider.Errorf(provider.SecretUnresolved, "The secret %s %s.", ref, why)
}

const asciiSpace = " \t\r\n\v\f"

// isPlainText takes printable ASCII, and what parts the lines of a private key: new lines, carriage returns and tabs.
func isPlainText(s string) bool {
	for i := range len(s) {
		printable := s[i] >= ' ' && s[i] <= '~'
		if !printable && s[i] != '\n' && s[i] != '\r' && s[i] != '\t' {
			return false
		}
	}
	return true
}
