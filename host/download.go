package host

import (
	"io"
	"net/http"
	"time"

	"better/compute/internal/problem"
)

// Agents opens the bcd binary for an architecture: amd64 or arm64.
type Agents func(arch string) (io.ReadCloser, error)

const (
	// So many machines fetch the agent at a time; the next are told to come again.
	maxDownloads = 64
	downloadTime = 2 * time.Minute
)

// download gives the agent to any machine that asks, since nothing in it is secret: a machine that gets no file over SSH fetches it when
// it boots. Who fetches compares the digest that came with its instructions, and so needs to trust nobody for it.
func (l *listener) download(agents Agents) http.Handler {
	slots := make(chan struct{}, maxDownloads)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			l.refuse(w, r, problem.New(problem.Unavailable, "Too many machines fetch the agent right now."))
			return
		}
		arch := r.PathValue("arch")
		if arch != "amd64" && arch != "arm64" {
			l.refuse(w, r, problem.New(problem.NotFound, "There is no agent for this architecture."))
			return
		}
		binary, err := agents(arch)
		if err != nil {
			l.refuse(w, r, err)
			return
		}
		defer func() { _ = binary.Close() }()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTime)) // else the listener's own holds
		w.Header().Set("Content-Type", "application/octet-stream")
		if _, err := io.Copy(w, binary); err != nil {
			l.log.InfoContext(r.Context(), "a machine did not get the whole agent", "remote", r.RemoteAddr, "error", err)
		}
	})
}
