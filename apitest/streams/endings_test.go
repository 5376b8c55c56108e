package streams

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"better/compute/apitest/harness"
	"better/compute/apitoken"
	"better/compute/internal/cursor"
	"better/compute/model"
)

// TestEndings ends streams in each way that a server does, over both transports: the follower hears why, and goes on without a loss.
func TestEndings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tokens := callers(3)
	stays := w.startServer(t, tokens)
	for name, transport := range map[string]follow{"websocket": followSocket, "sse": followEvents} {
		socket := name == "websocket"
		for _, c := range []struct {
			name  string
			token func(*testing.T) string
			end   func(t *testing.T, f *endingFollower)
			heard func(error) bool
		}{
			{"slow", tokenOf(tokens[0]), func(t *testing.T, f *endingFollower) {
				f.pause()
				f.write(t, burst)
				f.goOn()
			}, refusedWith("RATE_LIMITED")},
			{"right gone", func(t *testing.T) string { return w.newToken(t, "gone-"+name, 0) }, func(t *testing.T, _ *endingFollower) {
				w.exec(t, "DELETE FROM role_bindings WHERE subject = ?", "service:"+tenant+"/gone-"+name)
			}, refusedWith("FORBIDDEN")},
			{"token revoked", func(t *testing.T) string { return w.newToken(t, "revoked-"+name, 0) }, func(t *testing.T, _ *endingFollower) {
				w.exec(t, "UPDATE api_tokens SET revoked_at = now() WHERE subject = ?", "service:"+tenant+"/revoked-"+name)
			}, func(err error) bool { // the socket is closed while its streams end
				return refusedWith("UNAUTHENTICATED")(err) || socket && websocket.CloseStatus(err) == 4403
			}},
			{"token expired", func(t *testing.T) string {
				first := &endingFollower{world: w, server: stays, follow: transport, account: w.newAccount(t, name+" before the token")}
				return w.newToken(t, "expired-"+name, first.lifeToOpen(t, tokens[0]))
			}, func(*testing.T, *endingFollower) {}, func(err error) bool {
				if socket {
					return websocket.CloseStatus(err) == 4403
				}
				return refusedWith("UNAUTHENTICATED")(err)
			}},
			{"drain", tokenOf(tokens[1]), func(_ *testing.T, f *endingFollower) { _ = f.server.Signal(syscall.SIGTERM) }, func(err error) bool {
				if socket {
					return websocket.CloseStatus(err) == websocket.StatusGoingAway
				}
				return errors.Is(err, io.EOF) // without `complete`
			}},
		} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				t.Parallel()
				f := &endingFollower{world: w, server: stays, follow: transport, account: w.newAccount(t, name+" "+c.name)}
				f.run = w.newRun(t, f.account)
				if c.name == "drain" {
					f.server = w.startServer(t, tokens)
				}
				ended := f.open(t, c.token(t))
				c.end(t, f)
				select {
				case err := <-ended:
					if !c.heard(err) {
						t.Errorf("the stream ended with %v", err)
					}
				case <-time.After(harness.Patience):
					t.Fatal("the stream does not end")
				}
				f.write(t, 3)
				f.server = stays
				f.resume(t, tokens[2])
			})
		}
	}
}

func tokenOf(token string) func(*testing.T) string {
	return func(*testing.T) string { return token }
}

func refusedWith(code string) func(error) bool {
	return func(err error) bool {
		refused, ok := errors.AsType[refusedError](err)
		return ok && refused.code == code
	}
}

// newToken makes an API token by which the tenant's runs may be followed.
func (w *world) newToken(t testing.TB, name string, life time.Duration) string {
	t.Helper()
	owner := tenant
	in := model.CreateAPITokenInput{Name: name, TenantID: &owner}
	if life > 0 {
		in.ExpiresAt = new(model.NewTime(time.Now().Add(life)))
	}
	created, err := apitoken.Issue(t.Context(), w.db, "service:test", in)
	if err != nil {
		t.Fatal(err)
	}
	w.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES (?, 'provider-viewer', ?, 'allow')", created.APIToken.Subject, "compute-tenant/"+tenant)
	return created.Token
}

// endingFollower follows one account until its stream ends, and again after it.
type endingFollower struct {
	*world
	server  *server
	follow  follow
	account string
	run     string

	mu    sync.Mutex
	hold  chan struct{} // while it does not read
	seen  []sighting
	after string
}

// open follows, and returns when the stream has brought something.
func (f *endingFollower) open(t *testing.T, token string) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	l, err := cursor.NewSealer(f.db).List(ctx, "bootstrapStatusChanged", tenant, cursor.Optional(&f.account), "")
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{"tenantId": tenant, "accountId": f.account}
	if f.after != "" {
		variables["after"] = f.after
	}
	before, url := f.count(), f.server.url
	done := make(chan error, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		done <- f.follow(ctx, client, url, token, variables, func(c change) bool {
			f.mu.Lock()
			hold := f.hold
			f.mu.Unlock()
			if hold != nil {
				<-hold
			}
			at, ok := positionOf(l, c.Cursor)
			if !ok {
				t.Errorf("%q is no cursor of the stream", c.Cursor)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen, f.after = append(f.seen, sighting{At: at}), c.Cursor
			return true
		})
	}()
	harness.Await(t, "the stream brings something", func() bool {
		f.write(t, 1)
		return f.count() > before
	})
	return done
}

// lifeToOpen is that of a token that ends once a stream is open: as long as opening one takes on this machine, several times over.
func (f *endingFollower) lifeToOpen(t *testing.T, token string) time.Duration {
	t.Helper()
	began := time.Now()
	f.run = f.newRun(t, f.account)
	f.open(t, token)
	return 10*time.Second + 5*time.Since(began)
}

func (f *endingFollower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

func (f *endingFollower) pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = make(chan struct{})
}

func (f *endingFollower) goOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.hold)
	f.hold = nil
}

func (f *endingFollower) write(t testing.TB, n int) {
	t.Helper()
	f.tellMany(t, f.run, f.account, n)
}

// resume goes on after what was seen, and compares all of it with the outbox.
func (f *endingFollower) resume(t *testing.T, token string) {
	t.Helper()
	f.open(t, token)
	truth := f.committed(t, f.account)
	harness.Await(t, "the last event is seen", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.seen[len(f.seen)-1].At.Before(truth[len(truth)-1].At)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for truth[0].At.Before(f.seen[0].At) {
		truth = truth[1:]
	}
	if lost, twice, disorder := compare(truth, f.seen); lost+twice+disorder > 0 {
		t.Errorf("%d events were lost, %d came twice, %d came out of order", lost, twice, disorder)
	}
}
