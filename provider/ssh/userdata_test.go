package ssh_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// serveAgent is an agent listener that first gives something else than the agent. It returns its URL and who asked.
func serveAgent(t *testing.T, h *netns.Host, p provider.Payload) (url string, asked func() string) {
	t.Helper()
	var requests atomic.Int64
	var by atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by.Store(r.UserAgent())
		if requests.Add(1) == 1 {
			_, _ = io.WriteString(w, "#!/bin/sh\necho not the agent\n")
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v1/agent/") {
			http.NotFound(w, r)
			return
		}
		binary, err := p.AgentBinary(strings.TrimPrefix(r.URL.Path, "/v1/agent/"))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = binary.Close() }()
		_, _ = io.Copy(w, binary)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	_ = server.Listener.Close()
	server.Listener = must[net.Listener](t)(net.Listen("tcp", net.JoinHostPort(h.Gateway.String(), "0")))
	server.StartTLS() // with a certificate that nobody trusts
	t.Cleanup(server.Close)
	return server.URL, func() string { return by.Load().(string) }
}

// TestUserData has the script run as cloud-init runs it, on machines that have different tools.
func TestUserData(t *testing.T) {
	t.Parallel()
	hosts := netns.HostsWith(t, 3, netns.Options{})
	for i, tool := range []string{"curl", "Wget", "Python-urllib"} {
		h := hosts[i]
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			hide := map[string]string{"Wget": "curl", "Python-urllib": "curl wget"}[tool]
			h.Run("for name in " + hide + "; do rm -f /usr/bin/$name /usr/local/bin/$name /bin/$name; done")
			a := accountOn(h)
			p := payload(t, h, 3)
			var asked func() string
			p.JoinURL, asked = serveAgent(t, h, p)
			script := must[string](t)(ssh.UserData(a.id, p))
			if len(script) > 12<<10 {
				t.Errorf("the script has %d bytes, and some vendors take 16 KiB in base64", len(script))
			}
			h.Write("/root/user-data", script)
			said := h.Run("sh /root/user-data")
			if strings.Contains(said, token) {
				t.Errorf("the token is in the log: %s", said)
			}
			if got := asked(); !strings.HasPrefix(got, tool) {
				t.Errorf("%s asked for the agent", got)
			}
			// The agent trusts the pin alone: what gave it the binary is not who it joins.
			var s *provider.InstallStatus
			eventually(t, "the agent has run", func() bool {
				s = must[*provider.InstallStatus](t)(a.open(t).InstallStatus(t.Context(), h.Name, "generation-3"))
				return s.State == provider.InstallFailed
			})
			if log := strings.Join(s.Log, "\n"); !strings.Contains(log, "bcd starts") || !strings.Contains(log, "WRONG_SERVER") {
				t.Errorf("install %+v; the script said %s", s, said)
			}
			if got := h.Run("cat /etc/bcd/join-token; stat -c '%a %U' /etc/bcd/join-token"); got != token+"\n600 root\n" {
				t.Errorf("the token is %q", got)
			}
		})
	}
}

func TestUserDataWithoutAnAgent(t *testing.T) {
	t.Parallel()
	_, err := ssh.UserData("a", provider.Payload{AgentBinary: func(string) (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }})
	wantError(t, err, provider.Fatal, "no agent")
}
