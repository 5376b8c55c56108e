package vendor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Request is a request of an API that is called without an SDK.
type Request struct {
	Method, URL string
	Header      http.Header
	// Body is sent as JSON, and Form as a form in place of it; nil sends none.
	Body any
	Form url.Values
}

// Refusal is an answer with another status than 2xx. Options.Code finds the vendor's own code in its body.
type Refusal struct {
	Status int
	Body   []byte
}

// Error leaves the body out: it is not fit for logs.
func (r *Refusal) Error() string { return fmt.Sprintf("the answer has the status %d", r.Status) }

// JSON makes one request, and reads the answer, which is JSON, into out unless that is nil. Call it within Read or Change. An answer that refuses is a *Refusal.
func (v *Vendor) JSON(ctx context.Context, r Request, out any) error {
	body, contentType, err := r.encode()
	if err != nil {
		return err
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
		request.Header.Set("Content-Type", contentType)
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

func (r Request) encode() (body io.Reader, contentType string, err error) {
	switch {
	case r.Form != nil:
		return strings.NewReader(r.Form.Encode()), "application/x-www-form-urlencoded", nil
	case r.Body == nil:
		return nil, "", nil
	}
	text, err := json.Marshal(r.Body)
	if err != nil {
		return nil, "", fmt.Errorf("encoding a request: %w", err)
	}
	return bytes.NewReader(text), "application/json", nil
}
