package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"

	"better/compute/internal/cursor"
	"better/compute/internal/event"
)

const (
	smallDocument = `subscription($tenantId: ID!, $accountId: ID, $after: String) {
		bootstrapStatusChanged(tenantId: $tenantId, accountId: $accountId, after: $after) { cursor to bootstrap { id status } } }`
	bigDocument = `subscription($tenantId: ID!, $accountId: ID, $after: String) {
		bootstrapStatusChanged(tenantId: $tenantId, accountId: $accountId, after: $after) { cursor to bootstrap { id failure { logTail } } } }`
)

// change is what a follower hears.
type change struct {
	Cursor    string
	Bootstrap struct{ ID string }
}

// refusedError is an answer of the server that ends a stream.
type refusedError struct{ code, message string }

func (e refusedError) Error() string { return "refused: " + e.code + ": " + e.message }

// result is the payload of a `next` message, or a part of it.
type result struct {
	Data   struct{ BootstrapStatusChanged *change }
	Errors []failure
}

type failure struct {
	Message    string
	Extensions struct{ Code string }
}

func refusal(errs []failure) error { return refusedError{errs[0].Extensions.Code, errs[0].Message} }

// follow opens one subscription and hands over its changes until take wants no more (nil), the server ends it (refusedError), or the
// connection is lost.
type follow func(ctx context.Context, c *http.Client, url, token string, variables map[string]any, take func(change) (more bool)) error

// positionOf reads a cursor of a stream.
func positionOf(l cursor.List, text string) (event.Position, bool) {
	place, ok := cursor.Decode[struct {
		X uint64
		I int64
	}](l)(text)
	return event.Position{XID: place.X, ID: place.I}, ok
}

// frame is a message of graphql-transport-ws.
type frame struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

func followSocket(ctx context.Context, c *http.Client, url, token string, variables map[string]any, take func(change) bool) error {
	conn, err := dialSocket(ctx, c, url, token)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	if err := subscribe(ctx, conn, "1", smallDocument, variables); err != nil {
		return err
	}
	for {
		f, err := receive(ctx, conn)
		if err != nil {
			return err
		}
		if more, err := f.take(take); !more || err != nil {
			return err
		}
	}
}

func (f frame) take(take func(change) bool) (more bool, err error) {
	switch f.Type {
	case "next":
		var r result
		if err := json.Unmarshal(f.Payload, &r); err != nil {
			return false, err
		}
		if len(r.Errors) > 0 {
			return false, refusal(r.Errors)
		}
		return take(*r.Data.BootstrapStatusChanged), nil
	case "error":
		var errs []failure
		if err := json.Unmarshal(f.Payload, &errs); err != nil {
			return false, err
		}
		return false, refusal(errs)
	case "complete":
		return false, errors.New("the stream is complete")
	default:
		return true, nil
	}
}

// dialSocket opens a WebSocket and has its caller acknowledged.
func dialSocket(ctx context.Context, c *http.Client, url, token string) (*websocket.Conn, error) {
	conn, resp, err := websocket.Dial(ctx, url+"/graphql", &websocket.DialOptions{HTTPClient: c, Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return nil, err
	}
	_ = resp
	conn.SetReadLimit(1 << 20)
	payload, _ := json.Marshal(map[string]string{"authorization": "Bearer " + token})
	err = send(ctx, conn, frame{Type: "connection_init", Payload: payload})
	if err == nil {
		var f frame
		if f, err = receive(ctx, conn); err == nil && f.Type != "connection_ack" {
			err = fmt.Errorf("got %s instead of connection_ack", f.Type)
		}
	}
	if err != nil {
		_ = conn.CloseNow()
		return nil, err
	}
	return conn, nil
}

func subscribe(ctx context.Context, conn *websocket.Conn, id, document string, variables map[string]any) error {
	payload, _ := json.Marshal(map[string]any{"query": document, "variables": variables})
	return send(ctx, conn, frame{ID: id, Type: "subscribe", Payload: payload})
}

func send(ctx context.Context, conn *websocket.Conn, f frame) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, text)
}

func receive(ctx context.Context, conn *websocket.Conn) (f frame, err error) {
	_, text, err := conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	return f, json.Unmarshal(text, &f)
}

func followEvents(ctx context.Context, c *http.Client, url, token string, variables map[string]any, take func(change) bool) error {
	resp, err := openEvents(ctx, c, url, token, variables)
	if err != nil {
		return err
	}
	return readEvents(resp, take)
}

// readEvents reads a stream that is open, and closes it.
func readEvents(resp *http.Response, take func(change) bool) error {
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	var f frame
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err // what came of a line is none
		}
		line = strings.TrimSuffix(line, "\n")
		if kind, ok := strings.CutPrefix(line, "event: "); ok {
			f.Type = kind
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			f.Payload = json.RawMessage(data)
		}
		if line != "" || f.Type == "" {
			continue
		}
		if more, err := f.take(take); !more || err != nil {
			return err
		}
		f = frame{}
	}
}

func openEvents(ctx context.Context, c *http.Client, url, token string, variables map[string]any) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"query": smallDocument, "variables": variables})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/graphql", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the event stream was answered with %s", resp.Status)
	}
	return resp, nil
}

// shortLived makes clients whose connection ends after so many bytes from the server, wherever in a frame that is.
func shortLived(bytes int64) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c := &cutConn{Conn: conn}
			c.left.Store(bytes)
			return c, nil
		},
	}}
}

type cutConn struct {
	net.Conn
	left atomic.Int64
}

var errCut = errors.New("the connection was cut")

func (c *cutConn) Read(p []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		_ = c.Close()
		return 0, errCut
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.left.Add(int64(-n))
	return n, err
}
