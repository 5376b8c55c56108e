package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

const (
	answerLimit = 4 << 20
	pageLimit   = 1000
)

// client speaks to the cloud for one account.
type client struct {
	endpoint string
	mode     model.ClaimMode
	region   string
	token    func(context.Context) (string, error)
	http     *http.Client
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// Close lets the connections go.
func (c *client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// call makes one HTTP request, once, and decodes the answer into into, if that is not nil.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	token, err := c.token(ctx)
	if err != nil {
		if _, ok := errors.AsType[*provider.Error](err); ok {
			return err
		}
		return provider.Errorf(provider.SecretUnresolved, "The API token could not be resolved.").Because(err)
	}
	request, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return provider.Errorf(provider.Fatal, "The request could not be made.").Because(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	e := exchange{changes: method != http.MethodGet}
	response, err := c.http.Do(request.WithContext(e.watch(ctx)))
	if err != nil {
		return e.lost(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerLimit+1))
	switch {
	case response.StatusCode >= 400:
		return e.refused(response, answer)
	case err != nil:
		return e.lost(err)
	case response.StatusCode >= 300 || len(answer) > answerLimit:
		return e.unreadable(response, nil)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return e.unreadable(response, err)
	}
	return nil
}

func (c *client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.endpoint+path+"?"+query.Encode(), reader)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	return request, nil
}

// exchange is what has to be known of a request to class its failure.
type exchange struct {
	changes bool        // the request can have an effect
	sent    atomic.Bool // a connection was there, so bytes may have gone out
}

func (e *exchange) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { e.sent.Store(true) }})
}

// lost is a request without a whole answer.
func (e *exchange) lost(err error) error {
	if e.changes && e.sent.Load() {
		return provider.Errorf(provider.UnknownOutcome, "The cloud did not answer; it may have acted.").Because(err)
	}
	netErr, ok := errors.AsType[net.Error](err)
	if ok && netErr.Timeout() || errors.Is(err, context.Canceled) {
		return provider.Errorf(provider.Timeout, "The cloud did not answer in time.").Because(err)
	}
	return provider.Errorf(provider.Unavailable, "The cloud cannot be reached.").Because(err)
}

// unreadable is an answer that is not what the API promises. The body is not kept: it may be anything.
func (e *exchange) unreadable(response *http.Response, cause error) error {
	class := provider.InvalidResponse
	if e.changes {
		class = provider.UnknownOutcome
	}
	failure := provider.Errorf(class, "The cloud's answer (status %d) cannot be read.", response.StatusCode)
	failure.RequestID = requestID(response)
	return failure.Because(cause)
}

// classes has the error codes that mean more than their status.
var classes = map[string]struct {
	class   provider.Class
	message string
}{
	"quota_exceeded":  {provider.Quota, "The project has all the machines that it may have."},
	"offer_not_found": {provider.OfferGone, "The cloud does not sell this offer any more."},
	"out_of_stock":    {provider.OutOfStock, "The cloud has none of this offer left."},
	"locked":          {provider.Conflict, "The cloud is busy with the machine."},
	// Name and client token are the operation's, so these mean that it has ordered before: look for what.
	"uniqueness_error":      {provider.UnknownOutcome, "There is a machine of this operation's name already."},
	"client_token_mismatch": {provider.UnknownOutcome, "The operation has ordered something else before."},
	"client_token_spent":    {provider.Fatal, "The machine that this operation ordered was released."},
}

// refused is an answer that says that nothing was done, or a 5xx, which says nothing.
func (e *exchange) refused(response *http.Response, answer []byte) error {
	var told struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(answer, &told) // an answer in another form has only its status
	class, message := e.classOf(response.StatusCode)
	if known, ok := classes[told.Error.Code]; ok && response.StatusCode < 500 {
		class, message = known.class, known.message
	}
	failure := provider.Errorf(class, "%s", message)
	failure.Code = plain(told.Error.Code)
	failure.RequestID = requestID(response)
	if class == provider.RateLimited {
		failure.RetryAfter = retryAfter(response)
	}
	return failure
}

func (e *exchange) classOf(status int) (provider.Class, string) {
	switch {
	case status >= 500 && e.changes:
		return provider.UnknownOutcome, "The cloud failed; it may have acted."
	case status >= 500:
		return provider.Unavailable, "The cloud failed."
	}
	switch status {
	case http.StatusUnauthorized:
		return provider.Auth, "The cloud refused the API token."
	case http.StatusPaymentRequired:
		return provider.Payment, "The cloud wants an open invoice paid first."
	case http.StatusForbidden:
		return provider.Forbidden, "The API token lacks a right."
	case http.StatusNotFound:
		return provider.NotFound, "The cloud has no such thing in this project."
	case http.StatusConflict:
		return provider.Conflict, "The cloud is busy with the thing."
	case http.StatusTooManyRequests:
		return provider.RateLimited, "The cloud was asked too often."
	case http.StatusRequestTimeout:
		return provider.Timeout, "The cloud gave up waiting for the request."
	}
	return provider.Fatal, "The cloud does not take this request."
}

// retryAfter reads both forms of the header: seconds, and a date, which is taken against the cloud's own clock.
func retryAfter(response *http.Response) time.Duration {
	value := response.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), 24*60*60)) * time.Second
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(until.Sub(now), 0), 24*time.Hour)
}

var plainPattern = regexp.MustCompile(`\A[A-Za-z0-9._-]{0,64}\z`)

// plain lets only short words of the cloud's through to people.
func plain(word string) string {
	if !plainPattern.MatchString(word) {
		return ""
	}
	return word
}

func requestID(response *http.Response) string { return plain(response.Header.Get("X-Request-Id")) }

// list reads every page of a list. A page that leads back to an earlier one is an error, since what is between cannot be known.
func list[T any](ctx context.Context, c *client, name string, query url.Values) ([]T, error) {
	if query == nil {
		query = url.Values{}
	}
	items := []T{}
	for number := 1; number <= pageLimit; {
		query.Set("page", strconv.Itoa(number))
		var page struct {
			Items    *[]T
			NextPage *int
		}
		raw := map[string]json.RawMessage{}
		if err := c.call(ctx, http.MethodGet, "/v1/"+name, query, nil, &raw); err != nil {
			return nil, err
		}
		err := errors.Join(json.Unmarshal(orNull(raw[name]), &page.Items), json.Unmarshal(orNull(raw["nextPage"]), &page.NextPage))
		if err != nil || page.Items == nil {
			return nil, provider.Errorf(provider.InvalidResponse, "The cloud's list of %s cannot be read.", name).Because(err)
		}
		items = append(items, *page.Items...)
		if page.NextPage == nil {
			return items, nil
		}
		if *page.NextPage <= number {
			return nil, provider.Errorf(provider.InvalidResponse, "The cloud's list of %s runs in a circle.", name)
		}
		number = *page.NextPage
	}
	return nil, provider.Errorf(provider.InvalidResponse, "The cloud's list of %s does not end.", name)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}
