package cloud

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Install is one run of POST /v1/machines/{id}/install. ExitCode is set when it ended.
type Install struct {
	ID       string   `json:"id"`
	State    string   `json:"state"`
	ExitCode *int     `json:"exitCode"`
	Log      []string `json:"log"`

	ClientToken string `json:"clientToken,omitempty"`
	Outcome     string `json:"outcome,omitempty"` // the fault that decides how it ends; empty: it succeeds
}

// The states of an install.
const (
	InstallRunning   = "running"
	InstallSucceeded = "succeeded"
	InstallFailed    = "failed"
	InstallRemoved   = "removed"
)

func (m *machine) lastInstall() *Install {
	if len(m.installs) == 0 {
		return nil
	}
	return m.installs[len(m.installs)-1]
}

// installRequest is the body of POST /v1/machines/{id}/install.
type installRequest struct {
	Files       []installFile `json:"files"`
	Exec        []string      `json:"exec"`
	ClientToken string        `json:"clientToken"`
}

type installFile struct {
	Path    string `json:"path"` // from the machine's root
	Mode    string `json:"mode"` // octal; empty: 0644
	Content []byte `json:"content"`
}

func (f installFile) perm() (fs.FileMode, error) {
	if f.Mode == "" {
		return 0o644, nil
	}
	var mode fs.FileMode
	if _, err := fmt.Sscanf(f.Mode, "%o", &mode); err != nil || mode > 0o777 {
		return 0, invalid("mode %q of %q is not an octal file mode", f.Mode, f.Path)
	}
	return mode, nil
}

// check refuses every file outside the machine, and every command but its agent: the cloud runs it as itself.
func (r installRequest) check() error {
	for _, f := range r.Files {
		if !filepath.IsLocal(f.local()) {
			return invalid("path %q leaves the machine", f.Path)
		}
		if _, err := f.perm(); err != nil {
			return err
		}
	}
	if len(r.Exec) != 4 || !slices.Equal(r.Exec[:3], []string{"bcd", "run", "--config"}) || !filepath.IsLocal(r.Exec[3]) {
		return invalid(`exec must be ["bcd", "run", "--config", <path from the machine's root>]`)
	}
	if !tokenPattern.MatchString(r.ClientToken) {
		return invalid("clientToken must match %s", tokenPattern)
	}
	return nil
}

// local is the path from the machine's root.
func (f installFile) local() string { return strings.TrimPrefix(f.Path, "/") }

// installMachine wipes the machine, writes the files, and starts the agent when the install delay is over. It supersedes an
// install that runs.
func (c *Cloud) installMachine(call *call) (int, any, error) {
	var r installRequest
	if err := call.decode(&r); err != nil {
		return 0, nil, err
	}
	if err := r.check(); err != nil {
		return 0, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	if done := m.installOf(r.ClientToken); done != nil {
		return http.StatusAccepted, accepted(done), nil
	}
	if c.view(m).Status == StatusPending {
		return 0, nil, refusal(http.StatusConflict, "locked", "the machine is pending")
	}
	install := &Install{
		ID: fmt.Sprintf("i-%s-%d", m.ID[2:], len(m.installs)+1), State: InstallRunning, ClientToken: r.ClientToken, Log: []string{},
	}
	if k := call.fault.kind(); k == FaultInstallFails || k == FaultInstallHangs {
		install.Outcome = k
	}
	m.agent.stop()
	if err := c.writeDisk(m, r.Files); err != nil {
		return 0, nil, err
	}
	if err := c.record(Entry{
		Kind: EntryInstall, RequestID: call.requestID, Project: m.project, MachineID: m.ID, Name: m.Name, Install: install, Exec: r.Exec,
	}); err != nil {
		return 0, nil, err
	}
	m.begin(install, r.Exec)
	c.finishLater(m, install)
	return http.StatusAccepted, accepted(install), nil
}

// begin makes the install the one that counts; one that still runs is given up.
func (m *machine) begin(install *Install, exec []string) {
	if last := m.lastInstall(); last != nil && last.State == InstallRunning {
		code := 143
		last.State, last.ExitCode, last.Log = InstallFailed, &code, []string{"superseded by " + install.ID}
	}
	m.installs = append(m.installs, install)
	m.exec = exec
}

func (m *machine) installOf(clientToken string) *Install {
	i := slices.IndexFunc(m.installs, func(i *Install) bool { return clientToken != "" && i.ClientToken == clientToken })
	if i < 0 {
		return nil
	}
	return m.installs[i]
}

func accepted(i *Install) any {
	return map[string]string{"installId": i.ID}
}

// writeDisk gives the machine a fresh root with its identity and the files. os.Root keeps them all inside it.
func (c *Cloud) writeDisk(m *machine, files []installFile) error {
	if err := os.RemoveAll(c.rootDir(m)); err != nil {
		return err
	}
	if err := os.MkdirAll(c.rootDir(m), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.rootDir(m))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	identity := []installFile{
		{Path: "etc/machine-id", Mode: "0444", Content: []byte(m.OSMachineID + "\n")},
		{Path: "etc/hostname", Content: []byte(m.Name + "\n")},
		{Path: "sys/class/dmi/id/product_serial", Mode: "0400", Content: []byte(m.Serial + "\n")},
		{Path: "sys/class/dmi/id/product_name", Content: []byte(m.OfferID + "\n")},
		{Path: "sys/class/dmi/id/sys_vendor", Content: []byte("Simulated Cloud\n")},
	}
	for _, f := range slices.Concat(identity, files) {
		perm, err := f.perm()
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(f.local()), 0o755); err != nil {
			return invalid("path %q: %v", f.Path, err)
		}
		if err := root.WriteFile(f.local(), f.Content, perm); err != nil {
			return invalid("path %q: %v", f.Path, err)
		}
	}
	return nil
}

// finishLater ends the install when its delay is over, unless the machine or the cloud ends first.
func (c *Cloud) finishLater(m *machine, install *Install) {
	if install.Outcome == FaultInstallHangs {
		return
	}
	c.task(func() {
		select {
		case <-m.power.Done():
			return
		case <-time.After(c.options.InstallDelay):
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if m.power.Err() != nil || m.lastInstall() != install || install.State != InstallRunning {
			return
		}
		if err := c.finish(m, *install); err != nil {
			c.options.Log.Error("finishing an install", "machine", m.ID, "error", err)
		}
	})
}

// finish records how the install ended, then starts the agent.
func (c *Cloud) finish(m *machine, ended Install) error {
	log, code := []string{"wrote the files", "started bcd"}, 0
	switch {
	case ended.Outcome == FaultInstallFails:
		log, code = []string{"wrote the files", "bcd: cannot execute: No space left on device"}, 1
	case c.options.AgentBinary == "":
		log, code = []string{"wrote the files", "bcd: not found: this cloud was started without an agent binary"}, 127
	}
	ended.State, ended.ExitCode, ended.Log = InstallSucceeded, &code, log
	if code != 0 {
		ended.State = InstallFailed
	}
	if err := c.record(Entry{Kind: EntryInstalled, Project: m.project, MachineID: m.ID, Name: m.Name, Install: &ended}); err != nil {
		return err
	}
	m.installs[len(m.installs)-1] = &ended
	if code == 0 {
		c.startAgent(m)
	}
	return nil
}

// resume takes up, after a restart, what the machine was doing.
func (c *Cloud) resume(m *machine) error {
	last := m.lastInstall()
	switch {
	case m.released:
		return os.RemoveAll(c.machineDir(m))
	case last == nil:
	case last.State == InstallRunning:
		c.finishLater(m, last)
	case last.State == InstallSucceeded:
		c.startAgent(m)
	}
	return nil
}

// uninstallMachine stops the agent and wipes the machine, which stays the project's.
func (c *Cloud) uninstallMachine(call *call) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	last := m.lastInstall()
	if last == nil || last.State == InstallRemoved {
		return http.StatusNoContent, nil, nil
	}
	m.agent.stop()
	if err := c.writeDisk(m, nil); err != nil {
		return 0, nil, err
	}
	removed := *last
	removed.State = InstallRemoved
	if err := c.record(Entry{
		Kind: EntryInstalled, RequestID: call.requestID, Project: m.project, MachineID: m.ID, Name: m.Name, Install: &removed,
	}); err != nil {
		return 0, nil, err
	}
	m.installs[len(m.installs)-1] = &removed
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) getInstall(call *call) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	i := slices.IndexFunc(m.installs, func(i *Install) bool { return i.ID == call.r.PathValue("installId") })
	if i < 0 {
		return 0, nil, notFound("install")
	}
	install := m.installs[i]
	return http.StatusOK, map[string]any{
		"id": install.ID, "state": install.State, "exitCode": install.ExitCode, "log": install.Log,
	}, nil
}

// getConsole shows the last lines that the agent printed, over all its starts.
func (c *Cloud) getConsole(call *call) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	lines, err := lastLines(c.consoleFile(m), 40)
	return http.StatusOK, map[string]any{"log": lines}, err
}
