package rest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provideraccount"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	in, issues, err := decode[provideraccount.OffersInput]([]byte(`{"tenantId":"t","accountId":"a","query":{"kind":"vps","minGpus":2,"region":null}}`))
	if err != nil || len(issues) > 0 {
		t.Fatal(err, issues)
	}
	kind, gpus := model.VPS, 2
	want := provideraccount.OffersInput{TenantID: "t", AccountID: "a", Query: &model.OfferQuery{Kind: &kind, MinGpus: &gpus}}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Errorf("decode (-want +got):\n%s", diff)
	}
}

func TestDecodeKeepsAConfigAsItIs(t *testing.T) {
	t.Parallel()
	for _, config := range []string{`{"a":1.50,"b":[null,true]}`, `[1]`, `"text"`, `7`} {
		in, _, err := decode[model.CreateProviderAccountInput]([]byte(`{"config":` + config + `}`))
		if err != nil || string(in.Config) != config {
			t.Errorf("config %s became %s, %v", config, in.Config, err)
		}
	}
	in, _, err := decode[model.CreateProviderAccountInput]([]byte(`{"config":null}`))
	if err != nil || in.Config != nil {
		t.Errorf("a null config became %q, %v", in.Config, err)
	}
}

func TestDecodeListsAHundredFields(t *testing.T) {
	t.Parallel()
	members := make([]string, 4_000)
	for i := range members {
		members[i] = fmt.Sprintf(`"%d":0`, i)
	}
	_, issues, err := decode[provideraccount.ListInput]([]byte("{" + strings.Join(members, ",") + "}"))
	if err != nil || len(issues) != maxIssues+1 {
		t.Errorf("%d issues, %v", len(issues), err)
	}
}

func TestDecodeSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body string
		want []string
	}{
		{
			`{"tenantId":5,"accountId":null,"query":{"minGpus":1.5,"minVcpu":"3","kind":7,"extra":1,"minMemoryGiB":99999999999},"more":{}}`,
			[]string{"accountId", "more", "query.extra", "query.kind", "query.minGpus", "query.minMemoryGiB", "query.minVcpu", "tenantId"},
		},
		{`{"query":[]}`, []string{"accountId", "query", "tenantId"}},
		{`{"TenantId":"t"}`, []string{"TenantId", "accountId", "tenantId"}},
		{`{"tenantId":5,"accountId":"pacct_!","query":{"region":"NO","minGpus":65}}`, []string{"accountId", "query.minGpus", "query.region", "tenantId"}},
		{`{"tenantId":"","accountId":""}`, nil}, // the service says it
		{`[]`, []string{""}},
		{`{"tenantId":"a","tenantId":"b"}`, []string{""}},
		{``, []string{""}},
	} {
		in, types, err := decode[provideraccount.OffersInput]([]byte(c.body))
		if err == nil {
			err = merge(types, provideraccount.OffersForm(in)).Err()
		}
		var paths []string
		if p := problem.From(err); p != nil && p.Code == problem.InvalidInput {
			for _, i := range p.Details["issues"].([]problem.Issue) { //nolint:forcetypeassert // a test
				paths = append(paths, i.Path)
			}
		}
		if diff := cmp.Diff(c.want, paths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.body, diff)
		}
	}
}
