package awsec2_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/internal/guard"
	"better/compute/provider"
	"better/compute/provider/awsec2"
)

// priceList is the API that tells prices, beside a region's EC2.
type priceList struct {
	fake *fake

	mu      sync.Mutex
	items   []string
	perPage int
	asked   int
	// refusal is the code that every request is refused with.
	refusal string
	circle  bool // the list leads back to itself
}

// ServeHTTP is both APIs at one address.
func (p *priceList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Amz-Target") != "AWSPriceListService.GetProducts" {
		p.fake.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	var in struct {
		ServiceCode, NextToken string
		Filters                []struct{ Field, Type, Value string }
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	switch signed := r.Header.Get("Authorization"); {
	case err != nil || in.ServiceCode != "AmazonEC2" || len(in.Filters) != 6 || !strings.Contains(signed, "Credential="+accessKeyID+"/") || !strings.Contains(signed, "/us-east-1/pricing/aws4_request"):
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"__type":"InvalidParameterException","Message":"no"}`)
		return
	case p.refusal != "":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"__type":%q,"Message":"no"}`, p.refusal)
		return
	}
	from := 0
	_, _ = fmt.Sscanf(in.NextToken, "from-%d", &from)
	to := min(from+p.perPage, len(p.items))
	out := object{"FormatVersion": "aws_v1", "PriceList": p.items[from:to]}
	if to < len(p.items) {
		out["NextToken"] = fmt.Sprintf("from-%d", to)
	} else if p.circle {
		out["NextToken"] = "from-0"
	}
	_ = json.NewEncoder(w).Encode(out)
}

// price is the recorded entry of m5.large, with its texts changed in pairs.
func price(t *testing.T, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/price.json")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(changes...).Replace(string(text))
}

// of is the entry of a type, at a price on demand.
func of(t *testing.T, name, perHour string, changes ...string) string {
	t.Helper()
	return price(t, append([]string{`"m5.large"`, fmt.Sprintf("%q", name), `"0.0960000000"`, fmt.Sprintf("%q", perHour)}, changes...)...)
}

// priced opens an account at the list.
func priced(t *testing.T, p *priceList) provider.Client {
	t.Helper()
	if p.fake == nil {
		p.fake = newFake()
	}
	server := httptest.NewServer(p)
	d := awsec2.New(awsec2.Options{Endpoint: server.URL, PricingEndpoint: server.URL, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}})
	c, err := d.Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(plainConfig),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://aws-ssh" {
				return netns.NewKey(), nil
			}
			return secret, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); server.Close() })
	return c
}

// pricesOf are those of the offers that have one.
func pricesOf(t *testing.T, c provider.Client) map[string]string {
	t.Helper()
	offers, err := c.Offers(t.Context())
	if err != nil || len(offers) == 0 {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	prices := map[string]string{}
	for _, o := range offers {
		if o.Price != nil {
			prices[o.Name] = o.Price.Currency + " " + *o.Price.Hourly
		}
	}
	return prices
}

// TestPrices reads a list of several pages, in which is more than was asked for. It is asked for once.
func TestPrices(t *testing.T) {
	t.Parallel()
	p := &priceList{perPage: 3, items: []string{
		of(t, "c4.large", "0.1000000000"),
		of(t, "c4.large", "0.1000000000"), // again
		of(t, "c4.xlarge", "0.1990000000"),
		of(t, "c4.2xlarge", "0.3980000000"), of(t, "c4.2xlarge", "0.9990000000"), // which of the two nobody knows
		of(t, "c4.8xlarge", "0.0000000000"), // it is not sold
		of(t, "p3.16xlarge", "24.4800000000", `"Linux"`, `"Windows"`),
		of(t, "p3.16xlarge", "27.5400000000", `"Shared"`, `"Dedicated"`),
		of(t, "p3.16xlarge", "1.0000000000", `"Used"`, `"AllocatedHost"`),
		of(t, "p3.16xlarge", "3.0000000000", `"RunInstances"`, `"RunInstances:0002"`),
		of(t, "p3.16xlarge", "4.0000000000", `"locationType"`, `"regionCode": "eu-west-1", "locationType"`),
		of(t, "p3.16xlarge", "5.0000000000", `"unit": "Hrs"`, `"unit": "Quantity"`, `"unit":"Hrs"`, `"unit":"Quantity"`),
		of(t, "p3.16xlarge", "NaN"),
		"", "null", "[]", `{"product":7}`, "<html>",
	}}
	c := priced(t, p)
	want := map[string]string{"c4.large": "USD 0.1", "c4.xlarge": "USD 0.199"}
	for range 2 {
		got := pricesOf(t, c)
		for name := range got {
			if want[name] == "" {
				t.Errorf("%s costs %s", name, got[name])
			}
		}
		for name := range want {
			if p.fake.typeOf(name) != nil && got[name] != want[name] {
				t.Errorf("%s costs %q, want %q", name, got[name], want[name])
			}
		}
	}
	if got := pricesOf(t, c); got["c4.large"] == "" || p.asked != (len(p.items)+2)/3 {
		t.Errorf("the list was asked for %d times; %v", p.asked, got)
	}
}

// TestNoPricesCostNoOffers: an account that may not ask, or an API that fails, is asked once and then left alone for a while.
func TestNoPricesCostNoOffers(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*priceList{
		"forbidden": {refusal: "AccessDeniedException"}, "throttled": {refusal: "ThrottlingException"}, "wrong key": {refusal: "UnrecognizedClientException"},
		"nothing": {perPage: 1}, "only what is not understood": {perPage: 1, items: []string{"{}"}},
		"a circle": {perPage: 1, items: []string{of(t, "c4.large", "0.1000000000")}, circle: true},
	} {
		c := priced(t, p)
		for range 2 {
			if got := pricesOf(t, c); len(got) != 0 {
				t.Errorf("%s: %v", name, got)
			}
		}
		if p.asked > 2 {
			t.Errorf("%s: asked %d times", name, p.asked)
		}
	}
}

// TestAnOwnEndpointHasNoPrices unless the operator says where they are told: an account's secret goes to the operator's EC2 alone.
func TestAnOwnEndpointHasNoPrices(t *testing.T) {
	t.Parallel()
	p := &priceList{fake: newFake()}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	c, err := awsec2.New(awsec2.Options{Endpoint: server.URL, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}}).Open(t.Context(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(plainConfig), Secret: func(context.Context, string) (string, error) { return secret, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if got := pricesOf(t, c); len(got) != 0 || p.asked != 0 {
		t.Errorf("%v after %d questions", got, p.asked)
	}
}
