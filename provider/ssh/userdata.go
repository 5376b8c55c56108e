package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"better/compute/provider"
)

// UserData is the script that installs the agent when the machine's first boot runs it as root, as cloud-init runs user data. It does what
// Install does, but fetches the agent from the agent listener, and takes no other than the one that this server has: it knows the digest.
// It is 10 KB long, runs under any POSIX shell and needs curl, wget or Python. An *Error of class Fatal says that this server has no agent.
//
// It carries the join token, and a vendor keeps user data readable for the machine: the token counts once and for this machine alone.
func UserData(accountID string, payload provider.Payload) (string, error) {
	variables, err := installVariables(accountID, payload)
	if err != nil {
		return "", provider.Errorf(provider.Fatal, "The agent's configuration cannot be written.").Because(err)
	}
	found := false
	for _, arch := range []string{"amd64", "arm64"} {
		digest, err := digestOf(payload, arch)
		if err == nil {
			found = true
		}
		variables["digest_"+arch] = digest
	}
	if !found {
		return "", provider.Errorf(provider.Fatal, "The server has no agent for any architecture.")
	}
	variables["agent_url"] = payload.JoinURL + "/v1/agent"
	return "#!/bin/sh\n" + compose(variables, "fetch.sh", "service.sh", "commit.sh"), nil
}

// digestOf is empty for an architecture that the server has no agent for.
func digestOf(payload provider.Payload, arch string) (string, error) {
	binary, err := payload.AgentBinary(arch)
	if err != nil {
		return "", err
	}
	defer func() { _ = binary.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, binary); err != nil {
		return "", fmt.Errorf("reading the agent for %s: %w", arch, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
