package archtest

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const failsInCI = "in CI it fails instead"

// skips says of each file whose tests may be skipped why that hides nothing in CI, which runs as root and has all that `make deps` installs.
var skips = map[string][]string{
	"apitest/netns/cloudinit.go":                  {failsInCI},
	"apitest/netns/netns.go":                      {failsInCI, "a machine that boots systemd needs a package which would take this one over"},
	"apitest/torture/upgrade_test.go":             {"it needs a version before, which a clone in CI does not have"},
	"audit/backlog_test.go":                       {"CI does not run the short tests"},
	"console/console_test.go":                     {failsInCI},
	"internal/postgres/embedded/embedded_test.go": {"root runs it", "root runs it"},
	"internal/postgres/embedded/find_test.go":     {"it downloads from other people"},
	"provider/ironic/server_test.go":              {failsInCI},
	"provider/libvirt/server_test.go":             {failsInCI},
	"provider/providertest/bootstraps.go":         {"an ability that a driver does not have"},
	"provider/providertest/endpoint.go":           {"each driver gives its reason"},
	"provider/providertest/orders.go":             {"an ability that a driver does not have"},
	"provider/providertest/providertest.go":       {"each driver gives its reason", "an ability that a driver does not have", "an ability that a driver does not have"},
	"provider/providertest/spoilt.go":             {"each driver gives its reason"},
	"provider/ssh/loopback_test.go":               {failsInCI},
	"provider/ssh/system_test.go":                 {failsInCI},
	"server/fuzz_test.go":                         {"an input that is none"},
	"server/npm_test.go":                          {failsInCI},
}

// A test that is skipped in silence is one that nobody has.
func TestEverySkipHasAReason(t *testing.T) {
	t.Parallel()
	skip := regexp.MustCompile(`\.Skip(f|Now)?\(`)
	unseen := maps.Clone(skips)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, "../../")
		switch {
		case d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != "../.."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "internal/archtest/"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := len(skip.FindAll(text, -1)); n != len(skips[name]) {
			t.Errorf("%s can skip at %d places, and here are reasons for %d", name, n, len(skips[name]))
		}
		if reasons := skips[name]; len(reasons) > 0 && reasons[0] == failsInCI && !strings.Contains(string(text), `os.Getenv("CI")`) {
			t.Errorf("%s does not ask whether this is CI", name)
		}
		delete(unseen, name)
		return nil
	})
	if err != nil || len(unseen) > 0 {
		t.Errorf("%v; there is nothing to give reasons for in %v", err, unseen)
	}
}
