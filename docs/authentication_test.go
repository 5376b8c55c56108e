package docs

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/identity"
)

func TestAlgorithmsOfIssuers(t *testing.T) {
	t.Parallel()
	want := []string{}
	for _, a := range identity.Algorithms() {
		want = append(want, string(a))
	}
	for _, row := range table(t, "authentication.md", "rule", "value") {
		if row[0] != "signature" {
			continue
		}
		got := regexp.MustCompile(`\b(?:RS|PS|ES)\d{3}\b|\bEdDSA\b`).FindAllString(row[1], -1)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("authentication.md (-code +page):\n%s", diff)
		}
		return
	}
	t.Error("authentication.md does not name the algorithms")
}
