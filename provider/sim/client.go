package sim

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/vendor"
)

// client speaks to the cloud for one account.
type client struct {
	endpoint string
	mode     model.ClaimMode
	region   string
	token    func(context.Context) (string, error)
	vendor   *vendor.Vendor
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// Close lets the connections go.
func (c *client) Close() error {
	c.vendor.Close()
	return nil
}

// call makes one HTTP request, once, and decodes the answer into out, if that is not nil.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	through := c.vendor.Change
	if method == http.MethodGet {
		through = c.vendor.Read
	}
	return through(ctx, func(ctx context.Context) error {
		token, err := c.token(ctx)
		if err != nil {
			return err
		}
		return c.vendor.JSON(ctx, vendor.Request{
			Method: method, URL: c.endpoint + path + "?" + query.Encode(), Header: http.Header{"Authorization": {"Bearer " + token}}, Body: body,
		}, out)
	})
}

// codes are the error codes that mean more than their status.
var codes = map[string]provider.Class{
	"quota_exceeded":  provider.Quota,
	"offer_not_found": provider.OfferGone,
	"out_of_stock":    provider.OutOfStock,
	"locked":          provider.Conflict,
	// Name and client token are the operation's, so these mean that it has ordered before: look for what.
	"uniqueness_error":      provider.UnknownOutcome,
	"client_token_mismatch": provider.UnknownOutcome,
	"client_token_spent":    provider.Fatal, // the machine that this operation ordered was released
}

// codeOf is what the cloud calls its refusal. One with a 5xx may not be a refusal.
func codeOf(err error) string {
	refused, ok := errors.AsType[*vendor.Refusal](err)
	if !ok || refused.Status >= http.StatusInternalServerError {
		return ""
	}
	var told struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(refused.Body, &told) // an answer in another form has only its status
	return told.Error.Code
}

// list reads every page of a list. Without its field an answer is no list, and not an empty one.
func list[T any](ctx context.Context, c *client, name string, query url.Values) ([]T, error) {
	if query == nil {
		query = url.Values{}
	}
	return vendor.Pages(c.vendor, func(number int) ([]T, int, error) {
		query.Set("page", strconv.Itoa(number))
		var items *[]T
		var next *int
		raw := map[string]json.RawMessage{}
		if err := c.call(ctx, http.MethodGet, "/v1/"+name, query, nil, &raw); err != nil {
			return nil, 0, err
		}
		err := errors.Join(json.Unmarshal(orNull(raw[name]), &items), json.Unmarshal(orNull(raw["nextPage"]), &next))
		switch {
		case err != nil || items == nil || next != nil && *next == 0:
			return nil, 0, c.vendor.Errorf(provider.InvalidResponse).Because(err)
		case next == nil:
			return *items, 0, nil
		}
		return *items, *next, nil
	})
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}
