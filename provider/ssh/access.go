package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"better/compute/model"
	"better/compute/provider"
)

// Access is how a machine is reached that a vendor makes for an operation: who may log in, and the host key that it will show. Drivers
// whose vendor takes user data only when it makes a machine deliver this there, and install over SSH.
//
// The host key follows from the account's private key and the operation, so it is the same at every call, needs no place to be kept, and
// is known before the machine is: nothing is trusted on first use. Who has the private key could make it, but may log in anyhow. So could
// who is on the machine, where vendors show user data to all users: keep the machine's first users to those whom it is for.
type Access struct {
	login ssh.PublicKey
	host  ed25519.PrivateKey
	pin   ssh.PublicKey
}

// NewAccess takes the account's private key, in PEM. An *Error of class SecretUnresolved says that it is none.
func NewAccess(privateKey, operationID string) (*Access, error) {
	signer, err := ssh.ParsePrivateKey([]byte(privateKey))
	if err != nil {
		return nil, provider.Errorf(provider.SecretUnresolved, "The SSH private key is not one in PEM without a passphrase.") // err may quote it
	}
	seed, err := hkdf.Key(sha256.New, []byte(strings.TrimSpace(privateKey)), nil, "host key of "+operationID, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving a host key: %w", err)
	}
	host := ed25519.NewKeyFromSeed(seed)
	pin, err := ssh.NewPublicKey(host.Public())
	if err != nil {
		return nil, fmt.Errorf("deriving a host key: %w", err)
	}
	return &Access{login: signer.PublicKey(), host: host, pin: pin}, nil
}

// AuthorizedKey is the line for authorized_keys.
func (a *Access) AuthorizedKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(a.login)))
}

// Fingerprint is that of the host key, "SHA256:...".
func (a *Access) Fingerprint() string { return ssh.FingerprintSHA256(a.pin) }

// UserData is the cloud-config with which cloud-init, before sshd starts, gives the machine its host key and lets root in.
func (a *Access) UserData() (string, error) {
	private, public, err := a.hostKey()
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]any{ // which is YAML too
		"disable_root": false, "ssh_pwauth": false, "ssh_authorized_keys": []string{a.AuthorizedKey()},
		"ssh_deletekeys": true,
		"ssh_keys":       map[string]string{"ed25519_private": private, "ed25519_public": public},
	})
	return "#cloud-config\n" + string(config) + "\n", err
}

// hostKey gives both halves of the host key as sshd keeps them.
func (a *Access) hostKey() (private, public string, err error) {
	block, err := ssh.MarshalPrivateKey(a.host, "")
	if err != nil {
		return "", "", fmt.Errorf("encoding a host key: %w", err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(a.pin))), nil
}

// Machine is a machine that another driver reaches over SSH.
type Machine struct {
	ID      string
	Address string
	// User is root when empty.
	User string
	// Fingerprint is of the host key that the machine must show: "SHA256:...", or "MD5:aa:bb..." where the vendor tells no other.
	Fingerprint string
	// PrivateKey is the reference to the key to log in with.
	PrivateKey string
	Kind       model.MachineKind
}

// On opens a client for the one machine, which installs as this driver does on its own. The account is the other driver's.
func (d *Driver) On(ctx context.Context, account provider.Account, m Machine) (provider.Bootstrapper, error) {
	return d.on(ctx, account, m)
}

func (d *Driver) on(ctx context.Context, account provider.Account, m Machine) (*client, error) {
	one := map[string]any{"id": m.ID, "address": m.Address, "hostFingerprint": m.Fingerprint, "privateKey": m.PrivateKey, "kind": m.Kind, "user": m.User}
	config, err := json.Marshal(map[string]any{"machines": []any{one}})
	if err != nil {
		return nil, fmt.Errorf("encoding an inventory: %w", err)
	}
	account.Config, account.Inventory = config, nil
	c, err := d.Open(ctx, account)
	if err != nil {
		return nil, err
	}
	made, ok := c.(*client)
	if !ok {
		return nil, provider.Errorf(provider.Unsupported, "Nothing is installed over SSH.")
	}
	return made, nil
}
