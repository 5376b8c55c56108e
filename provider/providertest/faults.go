package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
)

// Fault spoils the answers to requests, before a fake or behind it.
type Fault struct {
	// Match says which requests; nil matches all.
	Match func(*http.Request) bool
	// Always spoils every match; otherwise the next one alone.
	Always bool
	// Do answers in place of the fake.
	Do Do
}

// Do answers in place of the fake, which it may ask.
type Do = func(w http.ResponseWriter, r *http.Request, fake http.Handler)

// Faults stands between a driver and a fake.
type Faults struct {
	fake http.Handler

	mu    sync.Mutex
	rules []Fault
}

// NewFaults stands before the fake, and lets everything through until a Fault is added.
func NewFaults(fake http.Handler) *Faults { return &Faults{fake: fake} }

// Add adds faults. Of several that match a request the first counts.
func (f *Faults) Add(rules ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rules...)
}

// ServeHTTP spoils the answer when there is a fault for the request.
func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := f.take(r); do != nil {
		do(w, r, f.fake)
		return
	}
	f.fake.ServeHTTP(w, r)
}

func (f *Faults) take(r *http.Request) Do {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, rule := range f.rules {
		if rule.Match != nil && !rule.Match(r) {
			continue
		}
		if !rule.Always {
			f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
		}
		return rule.Do
	}
	return nil
}

// Reply answers with this and asks nobody. The headers come in pairs.
func Reply(status int, body string, headers ...string) Do {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// AnswerLost has the fake act, and then breaks the connection.
func AnswerLost(_ http.ResponseWriter, r *http.Request, fake http.Handler) {
	fake.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// HalfAnswer has the fake act, and breaks the connection within the answer.
func HalfAnswer(w http.ResponseWriter, r *http.Request, fake http.Handler) {
	answer := httptest.NewRecorder()
	fake.ServeHTTP(answer, r)
	copyHeader(w, answer)
	w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

// Hang never answers.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// HTML answers as a proxy does that knows nothing of the API.
func HTML(w http.ResponseWriter, r *http.Request, fake http.Handler) {
	Reply(http.StatusOK, "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>", "Content-Type", "text/html")(w, r, fake)
}

// Rewrite has the fake answer, and changes the answer if it is a JSON document.
func Rewrite(change func(document any) any) Do {
	return func(w http.ResponseWriter, r *http.Request, fake http.Handler) {
		answer := httptest.NewRecorder()
		fake.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var document any
		if d.Decode(&document) == nil {
			if text, err := json.Marshal(change(document)); err == nil {
				body = text
			}
		}
		copyHeader(w, answer)
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	}
}

// ExtraFields adds to every object of an answer fields that nobody knows.
func ExtraFields(w http.ResponseWriter, r *http.Request, fake http.Handler) {
	Rewrite(func(document any) any { return walk(document, addFields) })(w, r, fake)
}

func addFields(v any) any {
	if object, ok := v.(map[string]any); ok {
		object["x_new_field"], object["zNew"] = "text", "" // texts, since an object may be a map of those
	}
	return v
}

// walk changes every value of a document, inner ones first.
func walk(v any, change func(any) any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) { // in one order, so that a seed repeats a run
			v[name] = walk(v[name], change)
		}
	case []any:
		for i, inner := range v {
			v[i] = walk(inner, change)
		}
	}
	return change(v)
}

func copyHeader(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
}
