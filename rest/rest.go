// Package rest owns the seven documented REST methods: a table of routes over the same services that GraphQL calls.
//
// It reads strict JSON, calls one service method and writes JSON. It refuses to know rules, SQL or authorization. The
// invariant: a method answers with the code that its GraphQL field gives for the same input.
package rest

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/internal/problem"
	"better/compute/internal/refusal"
	"better/compute/model"
	"better/compute/provideraccount"
)

//go:embed openapi.json
var openapi []byte

// Service answers the REST paths.
type Service struct {
	Accounts   *provideraccount.Service
	Bootstraps *bootstrap.Service
	Log        *slog.Logger
	// BodyBytes is how large a body may be. Zero means 256 KiB, as for GraphQL.
	BodyBytes int
	// Time is how long a method may take, LiveTime one that asks the provider. Zero means 10 and 35 seconds, as for GraphQL.
	Time, LiveTime time.Duration
}

// items wraps a list, so that an answer is always an object.
type items[T any] struct {
	Items []T `json:"items"`
}

// Cost is what a call of the path takes from its caller's points, as the same costs in GraphQL: a whole list counts as a page of the
// longest, and a live call of a provider takes 50 more. Live says whether it is one.
func Cost(path string) (points int, live bool) {
	switch strings.TrimPrefix(path, "/api/compute/providerAccounts/") {
	case "list":
		return 100, false
	case "offers":
		return 51, true
	case "create", "update", "delete", "bootstrap":
		return 21, false
	default:
		return 1, false
	}
}

// Handler serves POST /api/compute/providerAccounts/<method> and GET /api/compute/openapi.json. The caller's actor and
// request id are expected in the request's context.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	for name, method := range s.methods() {
		mux.Handle("POST /api/compute/providerAccounts/"+name, method)
		mux.Handle("/api/compute/providerAccounts/"+name, wrongMethod("POST"))
	}
	mux.HandleFunc("GET /api/compute/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, problem.New(problem.NotFound, "There is no such path."))
	})
	return mux
}

func (s *Service) methods() map[string]http.Handler {
	limit := cmp.Or(s.Time, 10*time.Second)
	return map[string]http.Handler{
		"create": method(s, limit, provideraccount.CreateForm, func(ctx context.Context, in model.CreateProviderAccountInput) (any, error) {
			out, err := s.Accounts.Create(ctx, in)
			if err != nil {
				return nil, err
			}
			return out.ProviderAccount, nil
		}),
		"list": method(s, limit, provideraccount.ListForm, func(ctx context.Context, in provideraccount.ListInput) (any, error) {
			out, err := s.Accounts.List(ctx, in)
			return items[*model.ProviderAccount]{out}, err
		}),
		"get": method(s, limit, provideraccount.GetForm, func(ctx context.Context, in provideraccount.GetInput) (any, error) {
			return s.Accounts.Get(ctx, in)
		}),
		"offers": method(s, cmp.Or(s.LiveTime, 35*time.Second), provideraccount.OffersForm, func(ctx context.Context, in provideraccount.OffersInput) (any, error) {
			out, err := s.Accounts.Offers(ctx, in)
			return items[*model.Offer]{out}, err
		}),
		"update": method(s, limit, updateInput.form, func(ctx context.Context, in updateInput) (any, error) {
			out, err := s.Accounts.Update(ctx, model.UpdateProviderAccountInput{
				TenantID: in.TenantID, AccountID: in.AccountID, Config: in.Config,
			})
			if err != nil {
				return nil, err
			}
			return out.ProviderAccount, nil
		}),
		"delete": method(s, limit, provideraccount.GetForm, func(ctx context.Context, in provideraccount.GetInput) (any, error) {
			if _, err := s.Accounts.Delete(ctx, model.DeleteProviderAccountInput{TenantID: in.TenantID, AccountID: in.AccountID}); err != nil {
				return nil, err
			}
			return map[string]bool{"deleted": true}, nil
		}),
		"bootstrap": method(s, limit, bootstrap.StartForm, func(ctx context.Context, in model.BootstrapMachineInput) (any, error) {
			out, err := s.Bootstraps.Start(ctx, in)
			if err != nil {
				return nil, err
			}
			return out.Bootstrap, nil
		}),
	}
}

// updateInput has no ifVersion: the documented method does not take one.
type updateInput struct {
	TenantID  string     `json:"tenantId"`
	AccountID string     `json:"accountId"`
	Config    model.JSON `json:"config,omitempty"`
}

func (in updateInput) form() problem.Issues {
	return provideraccount.GetForm(provideraccount.GetInput{TenantID: in.TenantID, AccountID: in.AccountID})
}

// method makes a handler of one service call. What the caller sent is judged only after it is known who calls. The form of the input is
// asked for where a field has a wrong type: the service is then not called, and what else is wrong must be said all the same.
func method[In any](s *Service, limit time.Duration, form func(In) problem.Issues, call func(context.Context, In) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := authz.ActorFrom(r.Context()); !ok {
			s.fail(w, r, problem.New(problem.Unauthenticated, "This request needs a credential."))
			return
		}
		body, err := s.read(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		in, types, err := decode[In](body)
		if err == nil {
			err = merge(types, form(in)).Err()
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		out, err := call(ctx, in)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, out)
	})
}

func (s *Service) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, problem.New(problem.InvalidInput, "The Content-Type must be application/json.").
			With("issues", []problem.Issue{{Path: "", Message: "must be sent as application/json"}})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(cmp.Or(s.BodyBytes, 256<<10))))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(problem.PayloadTooLarge, "The body is larger than %d bytes.", tooLarge.Limit).
			With("limit", tooLarge.Limit)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidInput, "The body could not be read to its end.").Because(err)
	}
	return body, nil
}

func wrongMethod(allow string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allow)
		refusal.WriteStatus(w, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "This path takes %s only.", allow))
	})
}

// fail writes the error body, and logs what the caller is not shown.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Code == problem.Internal {
		s.Log.ErrorContext(r.Context(), "request failed", "requestId", authz.RequestID(r.Context()), "path", r.URL.Path, "error", err)
		p = p.With("requestId", authz.RequestID(r.Context()))
	}
	refusal.Write(w, p)
}

func (s *Service) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && r.Context().Err() == nil {
		s.Log.WarnContext(r.Context(), "writing an answer", "requestId", authz.RequestID(r.Context()), "error", err)
	}
}
