package ssh

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"better/compute/provider"
)

// Where things are on the machine; prelude.sh has the same.
const (
	tokenFile = "/etc/bcd/join-token"
	stateDir  = "/var/lib/bcd"
)

// Install copies the agent beside the place where it goes, and then puts it there, with its configuration and token, in one step that
// runs to its end even if the connection breaks. The copy takes the same connection, so a machine need not reach the internet for
// it. What was installed before is stopped, and its identity wiped.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	err := c.session(ctx, machineID, c.limits.install, func(conn *connection) error {
		begun, err := conn.step("begin.sh", nil, payload)
		if err != nil {
			return err
		}
		upload := "/usr/local/bin/.bcd-" + strings.ToLower(rand.Text())
		size, err := conn.copyAgent(upload, goArch(begun.value("arch")), payload)
		if err != nil {
			return err
		}
		variables, err := installVariables(c.account.ID, payload)
		if err != nil {
			return err
		}
		variables["upload"], variables["size"] = upload, strconv.FormatInt(size, 10)
		_, err = conn.step("commit.sh", variables, payload, "service.sh")
		return err
	})
	if err != nil {
		return "", err
	}
	return installRef(payload.Generation), nil
}

// exitBusy is how commit.sh ends when another install has got in its way.
const exitBusy = 75

func installRef(generation int) string { return "generation-" + strconv.Itoa(generation) }

// step runs a script of an install, after those it needs. A script that fails is the install's failure.
func (c *connection) step(name string, variables map[string]string, payload provider.Payload, needs ...string) (*result, error) {
	r, err := c.script(variables, append(needs, name)...)
	if err != nil {
		return nil, err
	}
	if r.code == exitBusy {
		return nil, provider.Errorf(provider.Conflict, "Another install is under way on %s.", c.machine)
	}
	if r.code != 0 {
		return nil, c.installFailed(fmt.Sprintf("a step ended with exit code %d", r.code), r.lines, payload)
	}
	return r, nil
}

// installFailed shows what the machine said last, without the token whatever happens.
func (c *connection) installFailed(what string, lines []string, payload provider.Payload) error {
	log := make([]string, 0, 40)
	for _, line := range tail(lines) {
		if payload.Token != "" {
			line = strings.ReplaceAll(line, payload.Token, "[token]")
		}
		log = append(log, line)
	}
	said := ""
	if len(log) > 0 {
		said = ": " + log[len(log)-1]
	}
	e := provider.Errorf(provider.InstallError, "Installing on %s failed, %s%s", c.machine, what, said)
	e.Log = log
	return e
}

// copyAgent copies the binary for the architecture to the path and returns its size. What is there after an error is of no use.
func (c *connection) copyAgent(path, arch string, payload provider.Payload) (int64, error) {
	if arch != "amd64" && arch != "arm64" {
		return 0, provider.Errorf(provider.InstallError, "%s is of the architecture %q, which there is no agent for.", capital(c.machine.String()), arch)
	}
	binary, err := payload.AgentBinary(arch)
	if err != nil {
		return 0, provider.Errorf(provider.Fatal, "The server has no agent for the architecture %s.", arch).Because(err)
	}
	defer func() { _ = binary.Close() }()
	counted := &countingReader{r: binary}
	out, err := c.run("sh -c 'umask 077; cat > "+path+"'", counted)
	switch {
	case counted.err != nil:
		return 0, provider.Errorf(provider.Unavailable, "The agent for the architecture %s cannot be read on the server.", arch).Because(counted.err)
	case err != nil:
		return 0, err
	case out.code != 0:
		return 0, c.installFailed("the agent cannot be copied", printableLines(string(out.stderr.text)), payload)
	}
	return counted.n, nil
}

// countingReader tells an end from a failure, which look the same to the machine.
type countingReader struct {
	r   io.Reader
	n   int64
	err error
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func installVariables(accountID string, payload provider.Payload) (map[string]string, error) {
	config, err := json.Marshal(map[string]string{
		"server": payload.JoinURL, "caPin": payload.CAPin, "tokenFile": tokenFile, "stateDir": stateDir, "root": "/",
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the agent's configuration: %w", err)
	}
	variables := map[string]string{"config": string(config), "token": payload.Token, "mark": mark(accountID, payload.Generation)}
	for name, file := range map[string]string{"unit_text": "bcd.service", "init_text": "bcd.init"} {
		text, err := scripts.ReadFile("scripts/" + file)
		if err != nil {
			return nil, err
		}
		variables[name] = strings.TrimSuffix(string(text), "\n")
	}
	return variables, nil
}

// mark is left on the machine to tell one install from the next, and our installs from another account's.
func mark(accountID string, generation int) string { return accountID + " " + installRef(generation) }

// InstallStatus looks whether the agent runs. NotFound when the machine carries another install than the one that is asked for.
func (c *client) InstallStatus(ctx context.Context, machineID, ref string) (*provider.InstallStatus, error) {
	var status *provider.InstallStatus
	err := c.session(ctx, machineID, c.limits.call, func(conn *connection) error {
		r, err := conn.script(nil, "status.sh")
		if err != nil {
			return err
		}
		if r.value("mark") != c.account.ID+" "+ref {
			return provider.Errorf(provider.NotFound, "%s does not carry the install %s.", capital(conn.machine.String()), ref)
		}
		status = r.installStatus()
		return nil
	})
	return status, err
}

// installStatus takes an agent that neither runs nor has ended for one that is being started, as after a reboot.
func (r *result) installStatus() *provider.InstallStatus {
	s := &provider.InstallStatus{State: provider.InstallRunning, Log: tail(r.values("log"))}
	if r.value("running") == "yes" {
		s.State = provider.InstallSucceeded
	} else if exit := r.number("exit"); exit >= 0 {
		s.State, s.ExitCode = provider.InstallFailed, int(exit)
	}
	return s
}

// Uninstall stops and removes what this account installed. An agent of another account's on the same machine is left alone.
func (c *client) Uninstall(ctx context.Context, machineID string) error {
	return c.session(ctx, machineID, c.limits.call, func(conn *connection) error {
		_, err := conn.step("uninstall.sh", map[string]string{"account": c.account.ID}, provider.Payload{}, "service.sh")
		return err
	})
}
