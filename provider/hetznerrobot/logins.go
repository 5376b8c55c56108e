package hetznerrobot

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"
	"time"

	"better/compute/provider"
	"better/compute/provider/vendor"
)

// Robot blocks an address for ten minutes at the third login that fails. The address is that of this server and of all its accounts, so two
// may fail.
const (
	blockTime  = 10 * time.Minute
	mayBeWrong = 2
)

// logins keeps accounts whose credentials are wrong from having the server's address blocked, and with it everybody else's.
type logins struct {
	now  func() time.Time
	turn chan struct{} // credentials that have not been taken yet are tried one at a time

	mu      sync.Mutex
	good    map[fingerprint]bool
	refused map[fingerprint]time.Time
}

// fingerprint stands for credentials, which are not kept.
type fingerprint [sha256.Size]byte

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, turn: make(chan struct{}, 1), good: map[fingerprint]bool{}, refused: map[fingerprint]time.Time{}}
}

// with makes a call with the credentials, unless they were refused lately or another failure would be one too many.
func (l *logins) with(ctx context.Context, credentials string, call func() error) error {
	f := fingerprint(sha256.Sum256([]byte(credentials)))
	if !l.isGood(f) {
		select {
		case l.turn <- struct{}{}:
			defer func() { <-l.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := l.judge(f); err != nil {
			return err
		}
	}
	err := call()
	l.learn(f, err)
	return err
}

func (l *logins) isGood(f fingerprint) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.good[f]
}

func (l *logins) judge(f fingerprint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	soonest := blockTime
	for other, at := range l.refused {
		left := at.Add(blockTime).Sub(l.now())
		if left <= 0 {
			delete(l.refused, other)
			continue
		}
		soonest = min(soonest, left)
	}
	if _, was := l.refused[f]; was {
		return provider.Errorf(provider.Auth, "%s refused the credentials, and is not asked again with the same ones for ten minutes: it would block this server.", vendorName)
	}
	if !l.good[f] && len(l.refused) >= mayBeWrong {
		err := provider.Errorf(provider.RateLimited, "%s refused the credentials of other accounts and would block this server at one more; new ones have to wait.", vendorName)
		err.RetryAfter = soonest
		return err
	}
	return nil
}

func (l *logins) learn(f fingerprint, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal, refused := errors.AsType[*vendor.Refusal](err)
	switch {
	case refused && refusal.Status == http.StatusUnauthorized:
		delete(l.good, f)
		l.refused[f] = l.now()
	case err == nil, refused && refusal.Status != http.StatusForbidden && refusal.Status < 500 && codeOf(err) != "": // it looked at the request
		l.good[f] = true
	}
}
