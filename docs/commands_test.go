package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A command that a page names can be called.
func TestCommandsOfPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../README.md", "../CONTRIBUTING.md", "../ARCHITECTURE.md", "../SECURITY.md")
	makefile := read(t, "../Makefile")
	called := regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z-]*)")
	benchmark := regexp.MustCompile(`go test [^` + "`" + `\n]*-bench (\w+) \./(\w+)`)
	found := 0
	for _, page := range pages {
		text := read(t, page)
		for _, m := range called.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: there is no `make %s`", page, m[1])
			}
		}
		for _, m := range benchmark.FindAllStringSubmatch(text, -1) {
			found++
			if !hasBenchmark(t, m[2], m[1]) {
				t.Errorf("%s: %s has no benchmark %s", page, m[2], m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands", found)
	}
}

func hasBenchmark(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../" + folder + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`func Benchmark\w*` + name)
	return slices.ContainsFunc(files, func(file string) bool { return declared.MatchString(read(t, file)) })
}
