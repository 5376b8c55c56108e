package apitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"better/compute/internal/id"
	"better/compute/internal/problem"
)

// The transports of a subscription.
const (
	overSocket = "WebSocket"
	overEvents = "SSE"
)

// subscription is what a stream is opened with.
type subscription struct {
	transport, token, document string
	variables                  map[string]any
}

// ending is how a stream ended. Nothing is set when the connection went without a word.
type ending struct {
	completed bool
	code      problem.Code         // of an error instead of a message
	closed    websocket.StatusCode // of the WebSocket; -1 without one
}

// streaming is the process's client without its limit of time.
func (s *process) streaming() *http.Client { return &http.Client{Transport: s.http.Transport} }

// run opens a stream at a server and hands each message to take until it ends. An error is that the stream could not be opened.
func (s subscription) run(ctx context.Context, client *http.Client, url string, take func(data json.RawMessage)) (ending, error) {
	body, err := json.Marshal(map[string]any{"query": s.document, "variables": s.variables})
	if err != nil {
		return ending{}, err
	}
	if s.transport == overSocket {
		return s.socket(ctx, client, url, body, take)
	}
	return s.events(ctx, client, url, body, take)
}

func (s subscription) socket(ctx context.Context, client *http.Client, url string, body []byte, take func(json.RawMessage)) (ending, error) {
	options := &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"graphql-transport-ws"}}
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http")+graphqlPath, options)
	if err != nil {
		return ending{}, err
	}
	defer func() { _ = conn.CloseNow() }()
	for _, text := range []string{
		fmt.Sprintf(`{"type":"connection_init","payload":{"authorization":%q}}`, s.token),
		fmt.Sprintf(`{"id":"1","type":"subscribe","payload":%s}`, body),
	} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			return ending{}, err
		}
	}
	for {
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		_, text, err := conn.Read(ctx)
		if err != nil {
			return ending{closed: websocket.CloseStatus(err)}, nil
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return ending{}, err
		}
		switch m.Type {
		case "next":
			take(m.Payload)
		case "error":
			return ending{code: codeOf(m.Payload)}, nil
		case "complete":
			return ending{completed: true}, nil
		}
	}
}

func (s subscription) events(ctx context.Context, client *http.Client, url string, body []byte, take func(json.RawMessage)) (ending, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+graphqlPath, bytes.NewReader(body))
	if err != nil {
		return ending{}, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Content-Type", typeJSON)
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := client.Do(req)
	if err != nil {
		return ending{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		var refused struct{ Errors json.RawMessage }
		err := json.NewDecoder(resp.Body).Decode(&refused)
		return ending{code: codeOf(refused.Errors)}, err
	}
	kind := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		}
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if kind == "complete" {
			return ending{completed: true}, nil
		}
		var refused struct{ Errors json.RawMessage }
		if err := json.Unmarshal(data, &refused); err != nil {
			return ending{}, err
		}
		if refused.Errors != nil {
			return ending{code: codeOf(refused.Errors)}, nil
		}
		take(bytes.Clone(data))
	}
	return ending{}, nil
}

// codeOf is the code of the first of some GraphQL errors.
func codeOf(list json.RawMessage) problem.Code {
	var errs []struct{ Extensions struct{ Code problem.Code } }
	if err := json.Unmarshal(list, &errs); err != nil || len(errs) == 0 {
		return ""
	}
	return errs[0].Extensions.Code
}

// outbox makes events of one run, without the run's taking part.
type outbox struct {
	d                     *deployment
	tenant, account, boot string
	number                int64
}

func (d *deployment) newOutbox(t testing.TB, tenant string) *outbox {
	t.Helper()
	o := &outbox{d: d, tenant: tenant, account: id.New("pacct"), boot: id.New("boot")}
	pool := id.New("pool")
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES ($1, $2, 'sim', 'of-the-stream', '')`, []any{o.account, tenant}},
		{`INSERT INTO pools (id, tenant_id, name, class, agent) VALUES ($1, $2, 'of-the-stream', 'vps-host', 'bcd')`, []any{pool, tenant}},
		{`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id, host_id, joined_at)
			VALUES ($1, $2, $3, $4, '', $1, 'joined', $1, $5, now())`, []any{o.boot, tenant, o.account, pool, id.New("host")}},
	} {
		if _, err := d.db.Pool.Exec(t.Context(), s.query, s.args...); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

const insertEvent = `INSERT INTO events (tenant_id, type, bootstrap_id, account_id, data, at)
	VALUES ($1, 'provider.bootstrap.progressed', $2, $3, '{"data": {"from": "claiming", "to": "identifying"}}', to_timestamp($4::bigint / 1000.0))`

// emit commits one event.
func (o *outbox) emit(ctx context.Context) (number int64, err error) {
	if number, err = o.next(ctx); err != nil {
		return 0, err
	}
	_, err = o.d.db.Pool.Exec(ctx, insertEvent, o.tenant, o.boot, o.account, number)
	return number, err
}

// next is the number of the event to be written now. It is what the event's time is in milliseconds: that is how readers know it again.
func (o *outbox) next(ctx context.Context) (int64, error) {
	if o.number == 0 {
		err := o.d.db.Pool.QueryRow(ctx, "SELECT (extract(epoch FROM now()) * 1000)::bigint").Scan(&o.number)
		if err != nil {
			return 0, err
		}
	}
	o.number++
	return o.number, nil
}

// numberOf is the number of the event that a message tells of.
func numberOf(t testing.TB, data json.RawMessage) int64 {
	t.Helper()
	var m struct {
		Data struct {
			BootstrapStatusChanged struct{ At time.Time }
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Error(err)
	}
	return m.Data.BootstrapStatusChanged.At.UnixMilli()
}
