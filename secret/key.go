package secret

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/crypto/chacha20poly1305"
)

const keySize = chacha20poly1305.KeySize

var errOtherKey = errors.New("sealed with another key")

// Key seals the values of the built-in store with XChaCha20-Poly1305, whose nonces are long enough to be drawn at random.
// Safe for concurrent use.
type Key struct {
	id   string
	aead cipher.AEAD
}

// NewKey makes a key of 32 bytes.
func NewKey(raw []byte) (*Key, error) {
	aead, err := chacha20poly1305.NewX(raw)
	if err != nil {
		return nil, fmt.Errorf("a secret key has %d bytes, not %d", keySize, len(raw))
	}
	// The id tells keys apart and nothing about the key.
	sum := sha256.Sum256(append([]byte("compute secret key id\x00"), raw...))
	return &Key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// LoadKey reads a key file: 32 random bytes that only the owner can read. The error fits fs.ErrNotExist when there is no such file.
func LoadKey(path string) (*Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the secret key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the secret key %s can be read by others than its owner: its mode must be 0600", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the secret key: %w", err)
	}
	defer clear(raw)
	key, err := NewKey(raw)
	if err != nil {
		return nil, fmt.Errorf("the secret key %s: %w", path, err)
	}
	return key, nil
}

// sealedRow is a value as it is stored: the nonce, then the ciphertext.
type sealedRow struct {
	KeyID  string `bun:"key_id"`
	Sealed []byte `bun:"sealed"`
}

func (k *Key) seal(tenantID, name, text string) sealedRow {
	nonce := make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(text)+k.aead.Overhead())
	_, _ = rand.Read(nonce)
	return sealedRow{KeyID: k.id, Sealed: k.aead.Seal(nonce, nonce, []byte(text), k.context(tenantID, name))}
}

func (k *Key) open(tenantID, name string, row sealedRow) (string, error) {
	if row.KeyID != k.id {
		return "", errOtherKey
	}
	size := k.aead.NonceSize()
	if len(row.Sealed) < size {
		return "", errors.New("too short")
	}
	text, err := k.aead.Open(nil, row.Sealed[:size], row.Sealed[size:], k.context(tenantID, name))
	return string(text), err
}

// context binds a sealed value to its place, so that it cannot be moved to another tenant or name. Each part carries its length, so that
// no two places read alike.
func (k *Key) context(tenantID, name string) []byte {
	var b []byte
	for _, part := range []string{tenantID, name, k.id} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}
