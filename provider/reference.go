package provider

import (
	"errors"
	"regexp"
	"strings"
)

// ReferenceScheme says which backend holds a secret.
type ReferenceScheme string

// The schemes.
const (
	SecretScheme ReferenceScheme = "secret" // the built-in store
	EnvScheme    ReferenceScheme = "env"    // the server's environment
	VaultScheme  ReferenceScheme = "vault"
)

// Reference names a secret. Make one with ParseReference.
type Reference struct {
	Scheme ReferenceScheme
	// Name is the secret's name, the variable, or the path in the vault.
	Name string
	// Field is the field at the vault's path; empty for the other schemes.
	Field string
}

const (
	maxVaultPath     = 512
	maxVaultSegments = 16
)

// The forms are narrow on purpose: no escape, empty segment, leading dot or other trick can name a path outside of the tenant's.
var (
	secretName   = regexp.MustCompile(`\A[a-z0-9][a-z0-9._-]{0,62}\z`)
	variableName = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,127}\z`)
	vaultSegment = regexp.MustCompile(`\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\z`)
)

var errNotAReference = errors.New("not a secret reference")

// ParseReference reads secret://name, env://NAME or vault://path#field. Its error does not repeat s, which may be a secret.
func ParseReference(s string) (Reference, error) {
	scheme, rest, _ := strings.Cut(s, "://")
	switch ReferenceScheme(scheme) {
	case SecretScheme:
		if ValidSecretName(rest) {
			return Reference{Scheme: SecretScheme, Name: rest}, nil
		}
	case EnvScheme:
		if variableName.MatchString(rest) {
			return Reference{Scheme: EnvScheme, Name: rest}, nil
		}
	case VaultScheme:
		path, field, found := strings.Cut(rest, "#")
		if found && validVaultPath(path) && vaultSegment.MatchString(field) && !strings.Contains(field, "..") {
			return Reference{Scheme: VaultScheme, Name: path, Field: field}, nil
		}
	}
	return Reference{}, errNotAReference
}

// ValidSecretName reports whether the built-in store takes the name.
func ValidSecretName(name string) bool { return secretName.MatchString(name) }

func validVaultPath(path string) bool {
	segments := strings.Split(path, "/")
	if len(path) > maxVaultPath || len(segments) > maxVaultSegments || strings.Contains(path, "..") {
		return false
	}
	for _, segment := range segments {
		if !vaultSegment.MatchString(segment) {
			return false
		}
	}
	return true
}

// String is the reference as it stands in a config.
func (r Reference) String() string {
	s := string(r.Scheme) + "://" + r.Name
	if r.Field != "" {
		s += "#" + r.Field
	}
	return s
}
