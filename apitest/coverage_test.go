package apitest

import (
	"slices"
	"strings"
	"testing"

	"better/compute/internal/problem"
)

// TestCorpusCoversEachMethod wants of the stories that each method ends in each way that it can, over both transports. What needs a
// deployment or a provider of its own has tests of its own: INVALID_CONFIG, UNAVAILABLE, PAYLOAD_TOO_LARGE.
func TestCorpusCoversEachMethod(t *testing.T) {
	t.Parallel()
	common := []problem.Code{"", problem.Unauthenticated, problem.Forbidden, problem.InvalidInput}
	want := map[string][]problem.Code{
		"create":    {problem.Conflict},
		"list":      {},
		"get":       {problem.NotFound},
		"offers":    {problem.NotFound, problem.ProviderError},
		"update":    {problem.NotFound},
		"delete":    {problem.NotFound, problem.InvalidState},
		"bootstrap": {problem.NotFound, problem.InvalidState, problem.Conflict},
	}
	told := map[string][]problem.Code{}
	for _, s := range readStories(t) {
		for _, st := range s.steps {
			if st.verb == "call" && st.only == "" {
				told[st.method] = append(told[st.method], problem.Code(st.code))
			}
		}
	}
	for _, method := range restMethods() {
		for _, code := range append(slices.Clone(common), want[method]...) {
			if !slices.Contains(told[method], code) {
				t.Errorf("no story has %s end with %q", method, strings.TrimSpace(string(code)))
			}
		}
	}
}
