package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"better/compute/internal/leaktest"
)

// childState makes this test binary the owner of a server: it starts one on that directory, says so and waits to be
// killed.
const childState = "EMBEDDED_TEST_CHILD_STATE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childState); dir != "" {
		runOwner(dir)
	}
	leaktest.Main(m)
}

func runOwner(dir string) {
	s, err := Start(context.Background(), Options{StateDir: dir, Settings: []string{"fsync=off"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := query(context.Background(), s, "CREATE TABLE IF NOT EXISTS kept (v int); INSERT INTO kept VALUES (1)"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.child.pid)
	<-s.Done()
	os.Exit(0)
}

func TestRestartKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	// What a kill during the first initialisation leaves is no obstacle.
	if err := os.MkdirAll(filepath.Join(dir, "pg.init", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	mustQuery(t, s, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)")
	stop(t, s)
	select {
	case <-s.Done():
	default:
		t.Fatal("Done is open after Stop")
	}

	s = start(t, dir)
	mustQuery(t, s, "SELECT 1/count(*) FROM kept")
	stop(t, s)
	stop(t, s) // a second Stop is harmless
}

func TestSecondStartOnAStateDirectoryFailsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, stateDir(t))
	_, err := Start(t.Context(), Options{StateDir: s.stateDir()})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), s.stateDir()) {
		t.Fatalf("got %v, want ErrInUse that names the directory", err)
	}
	mustQuery(t, s, "SELECT 1")
}

func TestServerListensOnAPrivateSocketOnly(t *testing.T) {
	t.Parallel()
	s := start(t, stateDir(t))
	mustQuery(t, s, "SELECT 1/(current_setting('listen_addresses') = '')::int")
	info, err := os.Stat(s.paths.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %v", info.Mode())
	}
	if open := tcpSockets(t, s.child.pid); open != 0 {
		t.Errorf("postgres holds %d TCP sockets", open)
	}
}

func TestLongStateDirectoryGetsAShortSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(stateDir(t), strings.Repeat("long", 30))
	s := start(t, dir)
	mustQuery(t, s, "SELECT 1")
	stop(t, s)
	if _, err := os.Stat(s.paths.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary socket directory %s is left: %v", s.paths.socket, err)
	}
}

func TestStateDirectoryMayHaveAnyName(t *testing.T) {
	t.Parallel()
	s := start(t, filepath.Join(stateDir(t), "it's 100% a+b & c?#=é"))
	mustQuery(t, s, "SELECT 1")
	stop(t, s)
}

func TestDoneTellsThatPostgresDied(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := start(t, dir)
	mustQuery(t, s, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)")
	kill(t, s.child.pid)
	await(t, "Done", s.Done())
	stop(t, s)
	mustQuery(t, start(t, dir), "SELECT 1/count(*) FROM kept")
}

func TestKillingTheOwnerEndsPostgres(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	owner := startOwner(t, dir, nil)
	kill(t, owner.cmd.Process.Pid)
	_ = owner.cmd.Wait()
	mustQuery(t, start(t, dir), "SELECT 1/count(*) FROM kept") // waits for the rest of the old one
	awaitGone(t, owner.postgres)
}

// TestKillingTheOwnerAtAnyMoment starts the owner as a shell starts a background job, with SIGINT ignored, and kills
// it while it may be anywhere between finding the programs and its first query.
func TestKillingTheOwnerAtAnyMoment(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	stop(t, start(t, dir))
	self := filepath.Join(dir, "owner.test")
	copySelf(t, self)
	for range 8 {
		cmd := exec.Command("/bin/sh", "-c", "trap '' INT; exec "+self)
		cmd.Env = append(os.Environ(), childState+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(rand.N(250 * time.Millisecond))
		kill(t, cmd.Process.Pid)
		_ = cmd.Wait()
		s := start(t, dir)
		mustQuery(t, s, "SELECT 1")
		stop(t, s)
	}
}

func TestStartAfterOwnerAndPostgresWereBothKilled(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	for range 3 {
		owner := startOwner(t, dir, nil)
		kill(t, owner.postgres)
		kill(t, owner.cmd.Process.Pid)
		_ = owner.cmd.Wait()
		s := start(t, dir)
		mustQuery(t, s, "SELECT 1/count(*) FROM kept; DROP TABLE kept")
		stop(t, s)
	}
}

func TestOrdinaryUserNeedsNoRights(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("every other test here runs as an ordinary user already")
	}
	nobody := credential(t, "nobody")
	dir := stateDir(t)
	if err := os.Chown(dir, int(nobody.Uid), int(nobody.Gid)); err != nil {
		t.Fatal(err)
	}
	owner := startOwner(t, dir, nobody)
	if got := ownerOf(t, fmt.Sprintf("/proc/%d", owner.postgres)); got != nobody.Uid {
		t.Errorf("postgres runs as uid %d", got)
	}
	kill(t, owner.cmd.Process.Pid)
	_ = owner.cmd.Wait()
	awaitGone(t, owner.postgres)

	// Root takes over the same data, as the user that it belongs to.
	s := start(t, dir)
	mustQuery(t, s, "SELECT 1/count(*) FROM kept")
	if got := ownerOf(t, fmt.Sprintf("/proc/%d", s.child.pid)); got != nobody.Uid {
		t.Errorf("postgres runs as uid %d", got)
	}
}

func TestRootWithAPrivateStateDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs postgres as somebody else")
	}
	dir := stateDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(elsewhere, key(dir))
	t.Cleanup(func() { _ = os.RemoveAll(moved) })
	s := start(t, dir)
	mustQuery(t, s, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)")
	if got := filepath.Dir(s.paths.data); got != moved {
		t.Errorf("the data is in %s, want %s", got, moved)
	}
	if _, err := Start(t.Context(), Options{StateDir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second start: got %v, want ErrInUse", err)
	}
	stop(t, s)

	// With data in it, the directory is never passed over for an empty one.
	if err := os.Rename(s.paths.data, dataIn(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{StateDir: dir}); err == nil || !strings.Contains(err.Error(), "chmod o+x "+dir) {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
}

func TestDataOfAnotherMajorIsRefused(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	s := start(t, dir)
	stop(t, s)
	version := filepath.Join(s.paths.data, "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{StateDir: dir})
	if err == nil || !strings.Contains(err.Error(), "belongs to PostgreSQL 9") {
		t.Fatalf("got %v, want a refusal that names both versions", err)
	}
	if _, err := os.Stat(filepath.Join(s.paths.data, "base")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
}

func TestDirectoryThatIsNoDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	precious := filepath.Join(dataIn(dir), "precious")
	if err := os.MkdirAll(precious, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		account, err := unprivileged()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dataIn(dir), int(account.uid), int(account.gid)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(t.Context(), Options{StateDir: dir})
	if err == nil || !strings.Contains(err.Error(), "no PostgreSQL data directory") {
		t.Fatalf("got %v, want a refusal", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestDirectoryInTheSocketsPlaceIsNotRemoved(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	precious := filepath.Join(dir, "pg.run", "precious")
	if err := os.MkdirAll(precious, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{StateDir: dir}); err == nil || !strings.Contains(err.Error(), "pg.run") {
		t.Fatalf("got %v, want a refusal that names the directory", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestFailedStatementsAreNotLogged(t *testing.T) {
	t.Parallel()
	s := start(t, stateDir(t))
	if err := query(t.Context(), s, "SELECT 'precious'::int"); err == nil {
		t.Fatal("the statement did not fail")
	}
	text, err := os.ReadFile(s.paths.log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("precious")) || !bytes.Contains(text, []byte("starting PostgreSQL")) {
		t.Errorf("the log is:\n%s", text)
	}
}

func TestStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	_, err := Start(t.Context(), Options{StateDir: dir, Settings: []string{"no_such_setting=1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Fatalf("got %v, want what postgres wrote to its log", err)
	}
	mustQuery(t, start(t, dir), "SELECT 1")
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := stateDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{StateDir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the start was cancelled", err)
	}
	mustQuery(t, start(t, dir), "SELECT 1")
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{StateDir: dir, Settings: []string{"fsync=off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

func (s *Server) stateDir() string { return filepath.Dir(s.paths.lock) }

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stateDir is a directory that every user may enter: the parent of t.TempDir is private to root.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedded-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func query(ctx context.Context, s *Server, text string) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, text)
	return err
}

func mustQuery(t *testing.T, s *Server, text string) {
	t.Helper()
	if err := query(t.Context(), s, text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

type owner struct {
	cmd      *exec.Cmd
	postgres int
}

// startOwner runs this test binary as the owner of a server in a process that may be killed.
func startOwner(t *testing.T, dir string, as *syscall.Credential) owner {
	t.Helper()
	self := filepath.Join(dir, "owner.test")
	copySelf(t, self) // the build's directory is private to whom runs the tests
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), childState+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("the owner did not start a server: %v: %s", err, stderr.String())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return owner{cmd, pid}
}

// copySelf makes a program of this one. Nobody forks meanwhile: a child would hold the file open for writing for a moment, in which it cannot be executed.
func copySelf(t *testing.T, to string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	program, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(program, from)
	if err := errors.Join(err, program.Close()); err != nil {
		t.Fatal(err)
	}
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}

// awaitGone waits until a process that is no child of ours has ended; one that nobody waited for yet counts.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("postgres (pid %d) still runs", pid)
}

// tcpSockets counts the process's file descriptors that are TCP sockets.
func tcpSockets(t *testing.T, pid int) int {
	t.Helper()
	known := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if table == "tcp6" && errors.Is(err, os.ErrNotExist) {
			continue // a machine without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 9 {
				known["socket:["+fields[9]+"]"] = true
			}
		}
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("no file descriptors to look at: %v", err)
	}
	count := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && known[target] {
			count++
		}
	}
	return count
}
