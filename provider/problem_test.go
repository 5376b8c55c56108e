package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	full := Errorf(RateLimited, "Too many\nrequests\x1b[31m.").Because(errors.New(canary))
	full.RetryAfter, full.Code, full.RequestID = 1500*time.Millisecond, "rate_limit", "req-1"
	details := func(reason string, retryable bool) map[string]any {
		return map[string]any{"provider": "sim", "reason": reason, "retryable": retryable}
	}
	withMore := details("rate_limited", true)
	withMore["retryAfterSeconds"], withMore["providerCode"], withMore["requestId"] = 2, "rate_limit", "req-1"
	for name, c := range map[string]struct {
		err     error
		code    problem.Code
		details map[string]any
	}{
		"auth":              {Errorf(Auth, "No."), problem.ProviderError, details("credentials", false)},
		"forbidden":         {Errorf(Forbidden, "No."), problem.ProviderError, details("credentials", false)},
		"rate limited":      {full, problem.ProviderError, withMore},
		"out of stock":      {Errorf(OutOfStock, "No."), problem.ProviderError, details("out_of_stock", true)},
		"quota":             {Errorf(Quota, "No."), problem.ProviderError, details("quota", false)},
		"payment":           {Errorf(Payment, "No."), problem.ProviderError, details("payment", false)},
		"not found":         {Errorf(NotFound, "No."), problem.ProviderError, details("not_found", false)},
		"offer gone":        {Errorf(OfferGone, "No."), problem.ProviderError, details("not_found", false)},
		"conflict":          {Errorf(Conflict, "No."), problem.ProviderError, details("conflict", true)},
		"unavailable":       {Errorf(Unavailable, "No."), problem.ProviderError, details("unavailable", true)},
		"timeout":           {Errorf(Timeout, "No."), problem.ProviderError, details("timeout", true)},
		"invalid response":  {Errorf(InvalidResponse, "No."), problem.ProviderError, details("invalid_response", true)},
		"secret unresolved": {Errorf(SecretUnresolved, "No."), problem.ProviderError, details("secret_unresolved", false)},
		"fatal":             {Errorf(Fatal, "No."), problem.ProviderError, details("unavailable", false)},
		"wrapped":           {fmt.Errorf("listing: %w", Errorf(Quota, "No.")), problem.ProviderError, details("quota", false)},
		"unclassed":         {errors.New(canary), problem.ProviderError, details("unavailable", true)},
		"our deadline":      {context.DeadlineExceeded, problem.ProviderError, details("timeout", true)},
		"unsupported":       {Errorf(Unsupported, "No."), problem.Unsupported, map[string]any{"provider": "sim"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := problem.From(Problem("sim", c.err))
			if got.Code != c.code {
				t.Errorf("code %s", got.Code)
			}
			if diff := cmp.Diff(c.details, got.Details); diff != "" {
				t.Error(diff)
			}
			if !errors.Is(got, c.err) {
				t.Error("the cause is lost")
			}
			if strings.Contains(got.Message, canary) || strings.ContainsAny(got.Message, "\n\x1b") {
				t.Errorf("message %q", got.Message)
			}
		})
	}
	own := problem.New(problem.NotFound, "x")
	for _, same := range []error{nil, own, context.Canceled} {
		if got := Problem("sim", same); got != same {
			t.Errorf("%v became %v", same, got)
		}
	}
}
