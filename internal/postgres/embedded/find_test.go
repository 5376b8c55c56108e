package embedded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestNothingFoundListsEveryWay(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{StateDir: stateDir(t), Finder: &Finder{
		Path:   "/nowhere:.",
		Glob:   "/nowhere/*/bin",
		AptGet: "/bin/false",
		NPM:    "/nowhere/npm",
	}})
	if err == nil {
		t.Fatal("a server was found")
	}
	for _, want := range []string{
		"PG_BINDIR: not set", "PATH: has no postgres", "/nowhere/*/bin: no such directory", "apt-get install: ",
		"apt-get download: false: exit status 1", "npm install: ", "package postgresql", "set PG_BINDIR", "database.url",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestWrongBinDirIsNotPassedOver(t *testing.T) {
	t.Parallel()
	finder := DefaultFinder()
	finder.BinDir = "/nowhere"
	_, err := Start(t.Context(), Options{StateDir: stateDir(t), Finder: finder})
	if err == nil || !strings.Contains(err.Error(), "PG_BINDIR: running /nowhere/initdb") {
		t.Fatalf("got %v, want that PG_BINDIR is wrong", err)
	}
}

func TestFinderPrefersPathThenTheNewestPackage(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	onPath := fakePrograms(t, filepath.Join(dir, "path"), "13")
	fakePrograms(t, filepath.Join(dir, "lib/9.6/bin"), "9.6")
	fakePrograms(t, filepath.Join(dir, "lib/15/bin"), "15")
	newest := fakePrograms(t, filepath.Join(dir, "lib/17/bin"), "17")
	glob := filepath.Join(dir, "lib/*/bin")

	for name, c := range map[string]struct {
		finder Finder
		major  int
		want   string
	}{
		"path":                      {Finder{Path: onPath, Glob: glob}, 0, onPath},
		"newest":                    {Finder{Path: "/nowhere", Glob: glob}, 0, newest},
		"what the data needs":       {Finder{Path: onPath, Glob: glob}, 15, filepath.Join(dir, "lib/15/bin")},
		"the data's is not there":   {Finder{Path: onPath, Glob: glob}, 16, onPath},
		"the user's choice, always": {Finder{BinDir: onPath, Glob: glob}, 15, onPath},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := searchFor(t, &c.finder, c.major)
			if err != nil {
				t.Fatal(err)
			}
			if got.Dir != c.want {
				t.Errorf("found %s, want %s", got.Dir, c.want)
			}
		})
	}
}

func TestProgramsThatDoNotFitTogetherAreRefused(t *testing.T) {
	t.Parallel()
	dir := fakePrograms(t, filepath.Join(stateDir(t), "bin"), "15")
	writeProgram(t, filepath.Join(dir, "initdb"), "16")
	_, err := searchFor(t, &Finder{BinDir: dir}, 0)
	if err == nil || !strings.Contains(err.Error(), "initdb is version 16 but postgres is version 15") {
		t.Fatalf("got %v, want a refusal", err)
	}
}

// TestFetch downloads for real, so it runs only where that is wanted.
func TestFetch(t *testing.T) {
	t.Parallel()
	if os.Getenv("COMPUTE_TEST_FETCH") == "" {
		t.Skip("COMPUTE_TEST_FETCH is not set")
	}
	for name, finder := range map[string]*Finder{
		"npm": {NPM: "npm"},
		"apt": {AptGet: "apt-get", DpkgDeb: "dpkg-deb", Glob: "/usr/lib/postgresql/*/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Start(t.Context(), Options{StateDir: stateDir(t), Finder: finder, Log: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer stop(t, s)
			mustQuery(t, s, "SELECT 1")
		})
	}
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func searchFor(t *testing.T, finder *Finder, major int) (Binaries, error) {
	t.Helper()
	s := search{Finder: finder, cache: t.TempDir(), major: major, log: testLog(t)}
	return s.find(context.WithoutCancel(t.Context()))
}

func fakePrograms(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		writeProgram(t, filepath.Join(dir, name), version)
	}
	return dir
}

// writeProgram makes a program that does no more than to say its version.
func writeProgram(t *testing.T, path, version string) {
	t.Helper()
	syscall.ForkLock.RLock() // as copySelf
	defer syscall.ForkLock.RUnlock()
	script := "#!/bin/sh\necho '" + filepath.Base(path) + " (PostgreSQL) " + version + ".1'\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}
