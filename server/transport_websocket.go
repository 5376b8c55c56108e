package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/internal/slots"
	"better/compute/internal/strictjson"
)

const socketSubprotocol = "graphql-transport-ws"

// closeTime is how long a client that was too late with its credential gets to answer the closing handshake.
const closeTime = time.Second

// What a client may say before its caller is known: a token as large as any is, and a few words. Each message counts for at least leastHello.
const (
	helloBytes = 24 << 10
	leastHello = 1 << 10
)

// longestID is how many bytes the id of an operation may have: it is kept and comes back with each message.
const longestID = 128

// The close codes of the protocol. Its clients try again after 4403 and 4408 and after those codes of RFC 6455 that say so,
// and give up after the others.
const (
	closeBadRequest     websocket.StatusCode = 4400
	closeUnauthorized   websocket.StatusCode = 4401
	closeForbidden      websocket.StatusCode = 4403
	closeBadSubprotocol websocket.StatusCode = 4406
	closeInitTimeout    websocket.StatusCode = 4408
	closeDuplicateID    websocket.StatusCode = 4409
	closeTooManyInits   websocket.StatusCode = 4429
	closeTryLater                            = websocket.StatusTryAgainLater
	closeDraining                            = websocket.StatusGoingAway
)

// The types of messages.
const (
	messageInit      = "connection_init"
	messageAck       = "connection_ack"
	messagePing      = "ping"
	messagePong      = "pong"
	messageSubscribe = "subscribe"
	messageNext      = "next"
	messageError     = "error"
	messageComplete  = "complete"
)

// message is one frame of the protocol.
type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// incoming is a frame from the client, its payload parsed.
type incoming struct {
	id, kind string
	payload  map[string]any
}

// socket is one WebSocket connection. One goroutine reads; each operation runs in one of its own; whoever finds a reason
// to end the connection calls close, and the first reason is the one that the client hears.
type socket struct {
	server *Server
	conn   *websocket.Conn
	header http.Header
	known  func()             // leaves those whose caller is not known
	drop   context.CancelFunc // ends the connection without a word
	stop   context.CancelFunc // ends the operations
	frame  func() bool        // takes what a ping costs; of the goroutine that reads
	pings  atomic.Int32       // that are not answered yet

	mu      sync.Mutex
	closing bool                      // no message counts any more
	leaving bool                      // no operation begins any more
	answers int                       // queries and mutations that are executed
	running int                       // operations whose goroutine has not ended, those that the client gave up included
	live    map[string]*liveOperation // by the client's id
	tasks   sync.WaitGroup
}

// liveOperation is an operation that the client still listens to.
type liveOperation struct{ cancel context.CancelFunc }

// serveSocket upgrades and serves a connection until it ends. Nothing of it is left running when it returns.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	s.hijacked.Add(1)
	defer s.hijacked.Done()
	c := &socket{server: s, header: r.Header, live: map[string]*liveOperation{}}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols:       []string{socketSubprotocol},
		InsecureSkipVerify: true, // the Origin was checked for every request, see checkOrigin
		OnPingReceived:     func(context.Context, []byte) bool { return c.admitsFrame() },
		OnPongReceived:     func(context.Context, []byte) { c.pongReceived() },
	})
	if err != nil {
		return // Accept has answered
	}
	s.metrics.sockets.Inc()
	defer s.metrics.sockets.Dec()

	// Not the request's own end: that comes with its handler's, and at shutdown too early for a close frame.
	ctx, drop := context.WithCancel(context.WithoutCancel(r.Context()))
	defer drop()
	operations, stop := context.WithCancel(ctx)
	defer stop()
	known, full := s.pending.enter(drop)
	defer known()
	if full {
		s.metrics.limit("pending_sockets")
	}
	c.conn, c.known, c.drop, c.stop = conn, known, drop, stop
	defer context.AfterFunc(s.draining, c.leave)()
	if conn.Subprotocol() != socketSubprotocol {
		c.close(closeBadSubprotocol, "Subprotocol not acceptable")
	}
	defer c.end()
	c.serve(ctx, operations)
}

// leave ends the connection at drain: once what is executed is answered, and in time for its end to be heard.
func (c *socket) leave() {
	c.mu.Lock()
	c.leaving = true
	idle := c.answers == 0
	c.mu.Unlock()
	if idle {
		c.goAway()
		return
	}
	drainTime := c.server.config.Limits.DrainTime
	time.AfterFunc(drainTime-min(lastWords, drainTime/2), c.goAway)
}

func (c *socket) goAway() { c.close(closeDraining, "The server is going away") }

// answering counts a query or mutation until it is done.
func (c *socket) answering() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers++
	return func() {
		c.mu.Lock()
		c.answers--
		last := c.leaving && c.answers == 0
		c.mu.Unlock()
		if last {
			c.goAway()
		}
	}
}

// end waits for everything that the connection started.
func (c *socket) end() {
	c.mu.Lock()
	c.closing = true // so that no timer that fires now starts a task
	c.mu.Unlock()
	c.stop()
	c.tasks.Wait()
	_ = c.conn.CloseNow()
}

// serve takes the client through connection_init, then takes its operations, until the connection ends.
func (c *socket) serve(ctx, operations context.Context) {
	initTime := c.server.config.Limits.InitTime
	late := time.AfterFunc(initTime, func() { c.close(closeInitTimeout, "Connection initialisation timeout") })
	defer late.Stop()
	silent := time.AfterFunc(initTime+closeTime, c.drop) // who sends nothing will not answer a close frame either
	defer silent.Stop()
	var first *incoming
	c.read(ctx, c.hello(), func(m incoming) (more bool) {
		switch m.kind {
		case messageInit:
			first = &m
			return false
		case messagePing:
			_ = c.send(message{Type: messagePong})
		case messagePong:
		case messageSubscribe, messageComplete:
			c.close(closeUnauthorized, "Unauthorized")
		default:
			c.close(closeBadRequest, "Invalid message")
		}
		return true
	})
	if first == nil {
		return
	}
	late.Stop()
	silent.Stop()
	operations, leave := c.init(operations, first.payload)
	defer leave()
	c.conn.SetReadLimit(int64(c.server.config.Limits.BodyBytes))
	c.frame = func() bool { return c.paysWord(operations) }
	pays := func(data []byte) bool { return c.pays(operations, data) }
	c.read(ctx, pays, func(m incoming) (more bool) {
		c.handle(operations, m)
		return true
	})
}

// hello lets a client whose caller is not known yet say helloBytes in all. The connection ends with what is longer, before it is read.
func (c *socket) hello() (admit func(data []byte) bool) {
	left := min(helloBytes, c.server.config.Limits.BodyBytes)
	c.conn.SetReadLimit(int64(left))
	admit = func(data []byte) bool {
		left = max(left-max(len(data), leastHello), 0)
		c.conn.SetReadLimit(int64(left))
		return true
	}
	c.frame = func() bool {
		if left == 0 {
			c.close(websocket.StatusMessageTooBig, "Too much before connection_init")
			return false
		}
		return admit(nil)
	}
	return admit
}

// admitsFrame reports whether a ping of WebSocket's own is answered. It costs as much as a message that is no operation does.
func (c *socket) admitsFrame() bool { return !c.isClosing() && c.frame() }

// pongReceived takes the answers to our own pings for nothing, and any other as a ping.
func (c *socket) pongReceived() {
	if c.pings.Add(-1) < 0 {
		c.pings.Store(0)
		c.admitsFrame()
	}
}

// pays takes the points for reading a message, of whatever kind, from the caller. Where they are too few the message is not parsed: the
// operation that it would begin is refused, and the connection ends with any other, of which no client sends so many or so large ones in good faith.
func (c *socket) pays(ctx context.Context, data []byte) bool {
	err := c.server.quota.chargeBody(ctx, len(data))
	if err == nil {
		return true
	}
	refusal := c.server.engine.refuse(ctx, err)
	id := textMember(data, "id", longestID)
	if id == "" || c.isLive(id) || textMember(data, "type", len(messageSubscribe)) != messageSubscribe {
		c.close(closeTryLater, "Too many large messages")
		return false
	}
	_ = c.send(message{ID: id, Type: messageError, Payload: encodeErrors(refusal)})
	return false
}

// paysWord takes a point for a message that is no operation which takes its own. The connection ends where there is none.
func (c *socket) paysWord(ctx context.Context) bool {
	err := c.server.quota.charge(ctx, 1, nil)
	if err == nil {
		return true
	}
	c.server.metrics.limit(ruleOf(err))
	c.close(closeTryLater, "Too many messages")
	return false
}

// read hands on the messages that admit lets be parsed, until take wants no more or the connection ends. After close they are read on,
// as the closing handshake needs, and dropped.
func (c *socket) read(ctx context.Context, admit func(data []byte) bool, take func(incoming) (more bool)) {
	for more := true; more; {
		kind, data, err := c.conn.Read(ctx)
		if err != nil {
			return
		}
		if c.isClosing() || !admit(data) {
			continue
		}
		m, ok := parseMessage(kind, data)
		if !ok {
			c.close(closeBadRequest, "Invalid message")
			continue
		}
		more = take(m)
	}
}

// init authenticates the connection. The credential is the payload's `authorization`, else the header of the upgrade.
func (c *socket) init(ctx context.Context, payload map[string]any) (context.Context, func()) {
	token, isText := payload["authorization"].(string)
	if !isText {
		token = c.header.Get("Authorization")
	}
	actor, err := c.server.authenticate(ctx, bearer(token, true))
	if problem.Is(err, problem.Unavailable) {
		c.close(closeTryLater, "The credential cannot be checked now")
		return ctx, func() {}
	}
	if err != nil {
		c.close(closeForbidden, "Forbidden")
		return ctx, func() {}
	}
	leave, err := c.server.quota.socket(actor.Subject)
	if full, ok := errors.AsType[*slots.FullError](err); ok {
		c.server.metrics.limit("sockets_per_" + full.Key.Level)
		c.close(closeTryLater, "Too many connections")
		return ctx, func() {}
	}
	if !actor.Expires.IsZero() {
		expiry := time.AfterFunc(time.Until(actor.Expires), func() { c.close(closeForbidden, "Token expired") })
		release := leave
		leave = func() { expiry.Stop(); release() }
	}
	if c.server.deps.AfterEnd != nil {
		c.server.deps.AfterEnd(ctx, actor, func() { c.close(closeForbidden, "Token revoked") })
	}
	c.known()
	requestOf(ctx).subject = actor.Subject
	ctx = authz.WithActor(ctx, actor)
	_ = c.send(message{Type: messageAck})
	c.tasks.Go(func() { c.keepAlive(ctx) })
	return ctx, leave
}

// parseMessage reads a text frame with a JSON object of the protocol's form. A payload must be an object.
func parseMessage(kind websocket.MessageType, data []byte) (incoming, bool) {
	if kind != websocket.MessageText {
		return incoming{}, false
	}
	v, err := strictjson.Parse(data)
	object, isObject := v.(map[string]any)
	if err != nil || !isObject {
		return incoming{}, false
	}
	var issues problem.Issues
	m := incoming{
		id:      member[string](object, "id", "a string", &issues),
		kind:    member[string](object, "type", "a string", &issues),
		payload: member[map[string]any](object, "payload", "an object", &issues),
	}
	return m, len(issues) == 0
}

// handle takes a message after connection_init.
func (c *socket) handle(ctx context.Context, m incoming) {
	if m.kind != messageSubscribe && !c.paysWord(ctx) {
		return
	}
	switch m.kind {
	case messagePing:
		_ = c.send(message{Type: messagePong})
	case messagePong:
	case messageInit:
		c.close(closeTooManyInits, "Too many initialisation requests")
	case messageSubscribe:
		c.subscribe(ctx, m)
	case messageComplete:
		if m.id == "" {
			c.close(closeBadRequest, "Invalid message")
			return
		}
		c.forget(m.id)
	default:
		c.close(closeBadRequest, "Invalid message")
	}
}

func (c *socket) subscribe(ctx context.Context, m incoming) {
	params, err := paramsFrom(m.payload)
	if m.id == "" || len(m.id) > longestID || m.payload == nil || err != nil {
		c.close(closeBadRequest, "Invalid message")
		return
	}
	params.Headers = c.header
	ctx, cancel := context.WithCancel(ctx)
	op := &liveOperation{cancel: cancel}
	err = c.admit(m.id, op)
	if err == nil {
		c.tasks.Go(func() {
			defer cancel()
			c.run(ctx, m.id, op, params)
		})
		return
	}
	defer cancel()
	if !c.paysWord(ctx) {
		return
	}
	if errors.Is(err, errDuplicateID) {
		c.close(closeDuplicateID, "Subscriber for "+printable(m.id)+" already exists")
		return
	}
	refusal := c.server.engine.refuse(ctx, err)
	_ = c.send(message{ID: m.id, Type: messageError, Payload: encodeErrors(refusal)})
}

var errDuplicateID = errors.New("the operation id is in use")

// admit takes the id and a place for an operation: errDuplicateID, RATE_LIMITED or, at drain, UNAVAILABLE when it cannot.
func (c *socket) admit(id string, op *liveOperation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[id] != nil {
		return errDuplicateID
	}
	if c.leaving {
		return problem.New(problem.Unavailable, "The server is going away.")
	}
	if limit := c.server.config.Limits.SocketOperations; c.running >= limit {
		return problem.New(problem.RateLimited, "At most %d operations may run at a time on one connection.", limit).
			With("rule", "socket_operations").With("limit", limit).With("retryAfterSeconds", 1)
	}
	c.running++
	c.live[id] = op
	return nil
}

// run executes one operation and sends what it gives. A client that gave it up hears nothing more of it.
func (c *socket) run(ctx context.Context, id string, op *liveOperation, params *graphql.RawParams) {
	defer c.ended(id, op)
	defer c.server.presenter.recover(ctx)
	prepared, refusal := c.server.engine.prepare(ctx, params)
	if refusal != nil {
		c.finish(id, op, message{ID: id, Type: messageError, Payload: encodeErrors(refusal)})
		return
	}
	if prepared.kind() != ast.Subscription {
		defer c.answering()()
	}
	err := c.server.engine.run(ctx, prepared, func(resp *graphql.Response) error {
		if resp.Data == nil { // the operation could not start, or its source failed
			c.finish(id, op, message{ID: id, Type: messageError, Payload: encodeErrors(resp)})
			return errOperationOver
		}
		if !c.listening(id, op) {
			return errOperationOver
		}
		return c.send(message{ID: id, Type: messageNext, Payload: encodeResponse(resp)})
	})
	if err == nil && ctx.Err() == nil { // else it was ended, which is not to be taken for its end
		c.finish(id, op, message{ID: id, Type: messageComplete})
	}
}

var errOperationOver = errors.New("the operation is over")

// isLive reports whether the client still listens to an operation under the id.
func (c *socket) isLive(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[id] != nil
}

// listening reports whether the client still waits for this operation under the id, and not for a later one.
func (c *socket) listening(id string, op *liveOperation) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[id] == op && !c.closing
}

// finish frees the id, then sends the operation's last message, so that a client may use the id again at once.
func (c *socket) finish(id string, op *liveOperation, last message) {
	c.mu.Lock()
	mine := c.live[id] == op && !c.closing
	if mine {
		delete(c.live, id)
	}
	c.mu.Unlock()
	if mine {
		_ = c.send(last)
	}
}

// forget ends an operation on the client's word.
func (c *socket) forget(id string) {
	c.mu.Lock()
	op := c.live[id]
	delete(c.live, id)
	c.mu.Unlock()
	if op != nil {
		op.cancel()
	}
}

func (c *socket) ended(id string, op *liveOperation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.live[id] == op {
		delete(c.live, id)
	}
}

// send writes one message. A client that does not take it in time loses the connection, or it would hold the
// operation's goroutine for as long as its socket stays open. The operation's context plays no part: when one ends in the middle of
// a write, the whole connection would be lost with it.
func (c *socket) send(m message) error {
	data, err := encode(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.server.config.Limits.WriteTime)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, data)
}

// keepAlive pings on the WebSocket's own level, which every client answers by itself, and drops a peer that does not.
func (c *socket) keepAlive(ctx context.Context) {
	every := c.server.config.Limits.KeepAlive
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		pingCtx, cancel := context.WithTimeout(ctx, every)
		c.pings.Add(1)
		err := c.conn.Ping(pingCtx)
		cancel()
		if err != nil {
			c.drop()
			return
		}
	}
}

// close ends the operations and then the connection, for a reason. It returns at once: the closing handshake waits for the
// peer, 5 s at most.
func (c *socket) close(code websocket.StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.closing = true
	c.stop()
	c.tasks.Go(func() {
		_ = c.conn.Close(code, reason)
		c.drop()
	})
}

func (c *socket) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// encodeErrors is the payload of an error message: the bare list.
func encodeErrors(resp *graphql.Response) json.RawMessage {
	out, err := encode(resp.Errors)
	if err != nil {
		panic(err) // strings and numbers that the presenter put together
	}
	return out
}

// printable cuts a client's id to what fits into a close frame.
func printable(id string) string {
	const most = 60
	if len(id) > most {
		return strings.ToValidUTF8(id[:most], "") + "…"
	}
	return id
}

// isUpgrade reports whether serveSocket will answer the request, and no one else: such a request is let through without
// a credential.
// Offers of other protocols, such as the h2c that some HTTP clients make with every request, are declined by not being taken up.
func isUpgrade(r *http.Request) bool {
	if r.URL.Path != graphqlPath {
		return false
	}
	for protocol := range strings.SplitSeq(strings.Join(r.Header.Values("Upgrade"), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(protocol), "websocket") {
			return true
		}
	}
	return false
}
