package apitest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"better/compute/apitest/harness"
)

// TestReadmeExample types the examples of the README into a shell, beside a development server that has nothing yet. Only the port is
// another one, since this machine may have a server on the usual one.
func TestReadmeExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// PostgreSQL's own user must pass through, when root runs this.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	url := serveDev(t, dir)
	token, err := os.ReadFile(filepath.Join(dir, "data", "dev-token"))
	if err != nil {
		t.Fatal(err)
	}
	planted.add("the development token", string(token))

	example, rest := readmeBlock(t, "example"), readmeBlock(t, "rest example")
	const usual = "URL=http://127.0.0.1:8080\n"
	if !strings.HasPrefix(example, usual) {
		t.Fatalf("the example does not begin with %s", usual)
	}
	script := "URL=" + url + "\n" + strings.TrimPrefix(example, usual) + "echo\necho REST\n" + rest
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	graphql, overREST, _ := strings.Cut(string(out), "\nREST\n")
	account := regexp.MustCompile(`pacct_[0-9a-z]+`).FindString(graphql)
	run := regexp.MustCompile(`boot_[0-9a-z]+`).FindString(graphql)
	for _, want := range []string{`"to":"JOINED"`, `"hostId":"host_`, `"availability":"AVAILABLE"`, account, run} {
		if want == "" || !strings.Contains(graphql, want) {
			t.Errorf("the example does not show %q", want)
		}
	}
	for _, want := range []string{`"id":"` + account, `"id":"` + run, `"status":"joined"`, `"availability":"available"`} {
		if !strings.Contains(overREST, want) {
			t.Errorf("the same over REST does not show %q", want)
		}
	}
	if t.Failed() || strings.Contains(string(out), `"error`) {
		t.Errorf("what it printed:\n%s", out)
	}
}

// serveDev starts the development server in a directory of its own and waits for the line that it prints.
func serveDev(t *testing.T, dir string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), programs.Program(t, "compute-api"), "dev")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "COMPUTE_LISTEN=127.0.0.1:0", "COMPUTE_AGENT_LISTEN=127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // it has a database to stop
	printed := new(harness.Log)
	cmd.Stdout = printed
	s := newProcess(harness.Start(t, cmd, new(harness.Log)))
	t.Cleanup(func() { s.stop(t) })
	ready := regexp.MustCompile(`(?m)^ready url=(http://127\.0\.0\.1:[0-9]+) token=\S+ tenant=demo\n`)
	harness.Await(t, "the ready line", func() bool {
		if s.Dead() {
			t.Fatalf("it ended; it printed:\n%s\nand logged:\n%s", printed.Text(), s.Log.Text())
		}
		m := ready.FindStringSubmatch(printed.Text())
		if m != nil {
			url = m[1]
		}
		return m != nil
	})
	return url
}

// readmeBlock is the shell code between <!-- name --> and <!-- /name -->.
func readmeBlock(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, begins := strings.Cut(string(text), "<!-- "+name+" -->\n```sh\n")
	block, _, ends := strings.Cut(after, "```\n<!-- /"+name+" -->")
	if !begins || !ends {
		t.Fatalf("the README has no block %q", name)
	}
	return block
}
