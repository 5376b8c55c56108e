package refusal

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    *problem.Error
		status int
		header http.Header
		body   string
	}{
		"plain": {
			problem.New(problem.NotFound, "No <such> path."), 404,
			http.Header{},
			`{"error":{"code":"NOT_FOUND","details":{},"message":"No <such> path."}}`,
		},
		"with details": {
			problem.New(problem.Conflict, "Taken.").With("name", "a"), 409,
			http.Header{},
			`{"error":{"code":"CONFLICT","details":{"name":"a"},"message":"Taken."}}`,
		},
		"unauthenticated": {
			problem.New(problem.Unauthenticated, "Who?"), 401,
			http.Header{"Www-Authenticate": {"Bearer"}},
			`{"error":{"code":"UNAUTHENTICATED","details":{},"message":"Who?"}}`,
		},
		"rate limited": {
			problem.New(problem.RateLimited, "Wait.").With("retryAfterSeconds", 3), 429,
			http.Header{"Retry-After": {"3"}},
			`{"error":{"code":"RATE_LIMITED","details":{"retryAfterSeconds":3},"message":"Wait."}}`,
		},
		"a provider's wait is not ours": {
			problem.New(problem.ProviderError, "Wait.").With("retryAfterSeconds", 3), 502,
			http.Header{},
			`{"error":{"code":"PROVIDER_ERROR","details":{"retryAfterSeconds":3},"message":"Wait."}}`,
		},
	} {
		w := httptest.NewRecorder()
		Write(w, c.err)
		c.header.Set("Content-Type", "application/json; charset=utf-8")
		if w.Code != c.status || w.Body.String() != c.body+"\n" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if diff := cmp.Diff(c.header, w.Header()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
