package providertest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Contract holds both sides to the vendor's own description of its API: what the driver sends to the fake, and what the fake answers. A
// breach fails the test, since a fake that nobody holds to anything proves nothing. The prefix is what the fake's URLs have before the
// description's paths. Faults go around it: put them outside.
func Contract(t testing.TB, description, prefix string, fake http.Handler) http.Handler {
	t.Helper()
	router := describe(t, description, prefix)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		asked := r.Clone(r.Context())
		asked.URL.Scheme, asked.URL.Host = "http", r.Host
		asked.Body = io.NopCloser(bytes.NewReader(body))
		input, err := judgeRequest(asked, router)
		if err != nil {
			t.Errorf("the driver breaks the description: %s %s: %v", r.Method, r.URL, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		fake.ServeHTTP(answer, r)
		if input != nil {
			if err := judgeAnswer(r.Context(), input, answer); err != nil {
				t.Errorf("the fake breaks the description: %s %s: %v", r.Method, r.URL, err)
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// describe reads the description. It is not judged as a whole: vendors' have flaws that do not matter here.
func describe(t testing.TB, path, prefix string) routers.Router {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	doc.Servers = openapi3.Servers{{URL: prefix}}
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
		for _, o := range item.Operations() {
			o.Servers, o.Security = nil, nil // who may call is the fake's to judge
			for status, answer := range o.Responses.Map() {
				o.Responses.Set(strings.ToUpper(status), answer) // 4xx is 4XX
			}
		}
	}
	doc.Security = nil
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return router
}

func judgeRequest(r *http.Request, router routers.Router) (*openapi3filter.RequestValidationInput, error) {
	route, parameters, err := router.FindRoute(r)
	if err != nil {
		return nil, err
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true},
	}
	return input, openapi3filter.ValidateRequest(r.Context(), input)
}

func judgeAnswer(ctx context.Context, input *openapi3filter.RequestValidationInput, answer *httptest.ResponseRecorder) error {
	return openapi3filter.ValidateResponse(ctx, &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Options: input.Options,
		Body: io.NopCloser(bytes.NewReader(answer.Body.Bytes())),
	})
}
