package vendor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Request is a request of an API that is called without an SDK.
type Request struct {
	Method, URL string
	Header      http.Header
	// Body is sent as JSON; nil sends none.
	Body any
}

// Refusal is an answer with another status than 2xx. Options.Code finds the vendor's own code in its body.
type Refusal struct {
	Status int
	Body   []byte
}

// Error leaves the body out: it is not fit for logs.
func (r *Refusal) Error() string { return fmt.Sprintf("the answer has the status %d", r.Status) }

// JSON makes one request, and reads the answer into out unless that is nil. Call it within Read or Change. An answer that refuses is a *Refusal.
func (v *Vendor) JSON(ctx context.Context, r Request, out any) error {
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	if r.Header != nil {
		request.Header = r.Header.Clone()
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := v.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		return &Refusal{Status: response.StatusCode, Body: text} // also what was cut off: the status says enough
	case err != nil:
		return fmt.Errorf("reading an answer: %w", err)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("decoding an answer: %w", err)
	}
	return nil
}
