package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

// operator is somebody who looks after one tenant's account at the simulated cloud.
type operator struct {
	*testing.T
	server          *process
	cloud           string
	token           string
	account, pool   string
	accountArgument string
}

const operatorTenant = "watched"

// newOperator has an account whose token the cloud does not take yet.
func newOperator(t *testing.T) *operator {
	t.Helper()
	d := newDeployment(t)
	d.settings["bootstrap"].(map[string]any)["sweepEvery"] = "1s"
	o := &operator{T: t, token: d.caller("user:operator", "tenant-admin compute-tenant/"+operatorTenant), cloud: d.cloudURL}
	o.server = d.serve(t)
	o.secret("invalid")
	o.account, _ = o.must(`mutation { createProviderAccount(input: {tenantId: "watched", provider: "sim", name: "main",
		config: {apiToken: "secret://cloud"}}) { providerAccount { id } } }`, "createProviderAccount", "providerAccount", "id").(string)
	o.pool, _ = o.must(`mutation { createPool(input: {tenantId: "watched", name: "hosts", class: VPS_HOST, agent: BCD}) { pool { id } } }`,
		"createPool", "pool", "id").(string)
	o.accountArgument = fmt.Sprintf("tenantId: %q, accountId: %q", operatorTenant, o.account)
	return o
}

func (o *operator) secret(value string) {
	o.Helper()
	o.must(`mutation { putSecret(input: {tenantId: "watched", name: "cloud", value: "` + value + `"}) { secret { name } } }`)
}

func (o *operator) ask(document string) outcome {
	o.Helper()
	return o.server.execute(o.T, o.token, document, nil)
}

// must executes the document and gives what is at the path of its data.
func (o *operator) must(document string, path ...string) any {
	o.Helper()
	out := o.ask(document)
	if out.Code != "" {
		o.Fatalf("%s: %s %s %v", document, out.Code, out.Message, out.Details)
	}
	at := out.Data
	for _, name := range path {
		at = member(at, name)
	}
	return at
}

func (o *operator) await(what string, done func() bool) {
	o.Helper()
	harness.Await(o.T, what, done)
}

// metric is the sum of the metric over its labels, as this replica tells it.
func (o *operator) metric(name string) (sum float64) {
	o.Helper()
	text := string(o.server.send(o.T, http.MethodGet, "/metrics", "", "", nil).body)
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? ([0-9.e+]+)$`).FindAllStringSubmatch(text, -1) {
		var v float64
		if _, err := fmt.Sscan(m[1], &v); err != nil {
			o.Fatal(err)
		}
		sum += v
	}
	return sum
}

// An operator corrects the credentials of an account, plans a bootstrap and starts it, and gives back a machine that nobody owns.
func TestOperatorsDay(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	check := func() (ok, reason any) {
		t.Helper()
		answer := o.must(`mutation { checkProviderAccount(input: {`+o.accountArgument+`}) { providerAccount { check { ok reason message at } } } }`,
			"checkProviderAccount", "providerAccount", "check")
		return member(answer, "ok"), member(answer, "reason")
	}
	if ok, reason := check(); ok != false || reason != "credentials" {
		t.Errorf("the check says %v, %v", ok, reason)
	}
	offers := `{ offers(` + o.accountArgument + `, query: {kind: VPS}) { id availability price { hourly } } }`
	if out := o.ask(offers); out.Code != problem.ProviderError || out.Details["reason"] != "credentials" {
		t.Errorf("offers with a refused token: %+v", out)
	}
	plan := func(argument string) any {
		t.Helper()
		return o.must(`{ planBootstrap(`+o.accountArgument+`, poolId: "`+o.pool+`", `+argument+`) {
			ready wipes expectedMinutes price { hourly } preconditions { name ok code message } } }`, "planBootstrap")
	}
	if p := plan(`offerId: "vps-small:fra1"`); member(p, "ready") != false || !strings.Contains(fmt.Sprint(member(p, "preconditions")), "CREDENTIALS_REJECTED") {
		t.Errorf("the plan with a refused token: %v", p)
	}

	o.secret("watched-project") // opens the way without anything else
	o.must(offers)
	if ok, reason := check(); ok != true || reason != nil {
		t.Errorf("the check says %v, %v", ok, reason)
	}
	if p := plan(`offerId: "vps-small:fra1"`); member(p, "ready") != true || member(p, "price") == nil || member(p, "expectedMinutes") == nil {
		t.Errorf("the plan of an offer: %v", p)
	}
	run, _ := o.must(`mutation { bootstrapMachine(input: {`+o.accountArgument+`, poolId: "`+o.pool+`", offerId: "vps-small:fra1", idempotencyKey: "k"}) {
		bootstrap { id } } }`, "bootstrapMachine", "bootstrap", "id").(string)
	var told any
	o.await("the host", func() bool {
		told = o.must(`{ bootstrap(tenantId: "watched", bootstrapId: "`+run+`") { status failure { message } retryOf history { to until }
			claim { operationId price { hourly } attemptedAt orderRef candidates { id } } } }`, "bootstrap")
		return member(told, "status") == "JOINED"
	})
	claim := member(told, "claim")
	if candidates, _ := member(claim, "candidates").([]any); member(claim, "attemptedAt") == nil || member(claim, "price") == nil || len(candidates) != 0 {
		t.Errorf("the claim is %v", claim)
	}
	if out := o.ask(`mutation { retryBootstrap(input: {tenantId: "watched", bootstrapId: "` + run + `", idempotencyKey: "r"}) { replayed } }`); out.Code != problem.InvalidState {
		t.Errorf("a retry of what joined: %+v", out)
	}
	for name, want := range map[string]float64{
		"compute_order_intents_total": 1, "compute_orders_sent_total": 1, "compute_bootstraps_ended_total": 1, "compute_bootstrap_state_seconds_count": 5,
		"compute_accounts_refused": 0, "compute_orphans_open": 0, "compute_bootstraps_live": 0,
	} {
		o.await(fmt.Sprintf("%s to be %v", name, want), func() bool { return o.metric(name) == want })
	}
	o.orphan()
}

// orphan plants a machine that no run ordered, and has it given back.
func (o *operator) orphan() {
	o.Helper()
	operation := "bcd-" + strings.Repeat("0", 52)
	body, err := json.Marshal(map[string]any{
		"offerId": "vps-small:fra1", "name": operation, "clientToken": operation, "labels": map[string]string{"operation": operation},
	})
	if err != nil {
		o.Fatal(err)
	}
	machine := o.buy(body)
	var found any
	o.await("the orphan", func() bool {
		nodes, _ := o.must(`{ orphans(tenantId: "watched") { nodes { id kind machineId operationId resolvedAt } } }`, "orphans", "nodes").([]any)
		if len(nodes) == 1 {
			found = nodes[0]
		}
		return found != nil
	})
	if member(found, "kind") != "NOT_OURS" || member(found, "machineId") != machine || member(found, "operationId") != operation {
		o.Errorf("the orphan is %v, want machine %s", found, machine)
	}
	o.await("its figure", func() bool { return o.metric("compute_orphans_open") == 1 })
	release := func(machine string) outcome {
		return o.ask(fmt.Sprintf(`mutation { releaseMachine(input: {tenantId: "watched", orphanId: %q, machineId: %q}) { orphan { id } } }`, member(found, "id"), machine))
	}
	if out := release("m-other"); out.Code != problem.InvalidInput {
		o.Errorf("a release of another machine: %+v", out)
	}
	if out := release(machine); out.Code != "" {
		o.Errorf("the release: %+v", out)
	}
	o.await("the end of the orphan", func() bool {
		nodes, _ := o.must(`{ orphans(tenantId: "watched") { nodes { resolvedAt } } }`, "orphans", "nodes").([]any)
		return member(nodes[0], "resolvedAt") != nil
	})
	machines := fmt.Sprint(o.must(`{ providerAccount(`+o.accountArgument+`) { machines { id } } }`, "providerAccount", "machines"))
	if strings.Contains(machines, machine) {
		o.Errorf("the machine is still there: %s", machines)
	}
}

// buy orders a machine past the server, and gives its id.
func (o *operator) buy(body []byte) string {
	o.Helper()
	req, err := http.NewRequestWithContext(o.Context(), http.MethodPost, o.cloud+"/v1/machines", strings.NewReader(string(body)))
	if err != nil {
		o.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer watched-project")
	req.Header.Set("Content-Type", typeJSON)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var machine struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&machine); err != nil || resp.StatusCode != http.StatusCreated || machine.ID == "" {
		o.Fatalf("buying a machine: %d, %+v, %v", resp.StatusCode, machine, err)
	}
	return machine.ID
}
