// Package serverkey owns the secret keys that all replicas of a deployment share, and that nobody has to set up.
//
// It refuses to know what a key is for. The invariant: of a name there is one key, in whichever replica it is asked for, as long as the
// database lives.
package serverkey

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

const size = 32

// Key is the key of one name. It is safe for concurrent use.
type Key struct {
	db   *postgres.DB
	name string
	key  atomic.Pointer[[]byte]
}

// New names a key, which the first that asks for it makes. It needs no database before the first Get.
func New(db *postgres.DB, name string) *Key { return &Key{db: db, name: name} }

// Get gives the key. Its first call reads it, later ones ask nobody. UNAVAILABLE when it cannot be read.
func (k *Key) Get(ctx context.Context) ([]byte, error) {
	if key := k.key.Load(); key != nil {
		return *key, nil
	}
	key, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	k.key.Store(&key)
	return key, nil
}

// read makes the key where there is none yet. Of several that make one at the same time, all get the same.
func (k *Key) read(ctx context.Context) ([]byte, error) {
	key, err := k.find(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		made := make([]byte, size)
		_, _ = rand.Read(made) // never fails
		_, err = k.db.NewRaw("INSERT INTO server_keys (name, key) VALUES (?, ?) ON CONFLICT DO NOTHING", k.name, made).Exec(ctx)
		if err == nil {
			key, err = k.find(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		err = problem.New(problem.Unavailable, "The key %s of this server cannot be read right now; try again.", k.name).Because(err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	return key, nil
}

func (k *Key) find(ctx context.Context) (key []byte, err error) {
	err = k.db.NewRaw("SELECT key FROM server_keys WHERE name = ?", k.name).Scan(ctx, &key)
	return key, err
}
