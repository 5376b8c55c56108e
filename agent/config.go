package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
)

// Config is the JSON file that the installer leaves beside the binary.
type Config struct {
	// Server is the URL of the agent listener, https only.
	Server string `json:"server"`
	// CAPin is "sha256:" and the SHA-256, in hex, of the SubjectPublicKeyInfo of the CA that the server must have; while the server
	// changes from one CA to another it is both, with a comma between.
	CAPin string `json:"caPin"`
	// TokenFile holds the join token. It is deleted after the join.
	TokenFile string `json:"tokenFile"`
	// StateDir is made with mode 0700 and holds the key, the certificate and the CA bundle.
	StateDir string `json:"stateDir"`
	// Root is where the machine's own files are read from; empty means "/". With it one machine can simulate many.
	Root string `json:"root"`
}

var pinPattern = regexp.MustCompile(`\Asha256:[0-9a-f]{64}(,sha256:[0-9a-f]{64})*\z`)

// LoadConfig reads and checks the file at path.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	var cfg Config
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		return Config{}, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if err := cfg.check(); err != nil {
		return Config{}, fmt.Errorf("the configuration %s: %w", path, err)
	}
	return cfg, nil
}

func (c Config) check() error {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil:
		return errors.New("server: not an https URL")
	case !pinPattern.MatchString(c.CAPin):
		return errors.New(`caPin: not "sha256:" and 64 lower-case hex digits, or several such with a comma between`)
	case c.TokenFile == "":
		return errors.New("tokenFile: missing")
	case c.StateDir == "":
		return errors.New("stateDir: missing")
	}
	return nil
}

func (c Config) token() (string, error) {
	text, err := os.ReadFile(c.TokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("this host has not joined, and there is no token in %s to join with", c.TokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("reading the join token: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

func (c Config) removeToken() error {
	if err := os.Remove(c.TokenFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
