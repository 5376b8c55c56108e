package apitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
)

// TestRightsOfEveryOperation asks for every root field of the schema and every REST path as somebody who may not, and fails when
// there is one that it does not know.
func TestRightsOfEveryOperation(t *testing.T) {
	t.Parallel()
	cases := rightsCases()
	w := newRightsWorld(t)
	t.Run("none is left out", func(t *testing.T) {
		for _, name := range append(w.rootFields(t), restRoutes(t)...) {
			if _, known := cases[name]; !known {
				t.Errorf("%s has no cases here", name)
			}
		}
	})
	t.Run("the documentation names what it takes", func(t *testing.T) {
		documented := documentedRights(t)
		for name, c := range cases {
			_, field, ok := strings.Cut(name, ".")
			if field, _, _ = strings.Cut(field, " of "); !ok || c.path != "" {
				continue
			}
			body, code := w.ask(t, c, w.tokens["stranger"], w.tenant, w.present[c.kind])
			row, known := documented[field]
			if !known || code == allowed && strings.Contains(row, "compute:") || code != allowed && !takesWhatItSays(body, row) {
				t.Errorf("%s is documented as %q and answers %s", name, row, body)
			}
		}
	})
	t.Run("each denial is audited", func(t *testing.T) {
		for name, c := range cases {
			before := w.denials(t)
			if _, got := w.ask(t, c, w.tokens["stranger"], w.tenant, w.present[c.kind]); got == problem.Forbidden && w.denials(t) != before+1 {
				t.Errorf("%s was denied, and the audit log has %d rows more", name, w.denials(t)-before)
			}
		}
	})
	for name, c := range cases {
		if c.shows == "" {
			continue
		}
		t.Run(name+" shows what may be read", func(t *testing.T) { w.wantShown(t, c) })
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("unauthenticated", func(t *testing.T) {
				w.want(t, c, "", w.tenant, w.present[c.kind], problem.Unauthenticated)
			})
			t.Run("forbidden", func(t *testing.T) { w.forbidden(t, c) })
			t.Run("other tenant", func(t *testing.T) { w.otherTenant(t, c) })
			t.Run("rights on another item", func(t *testing.T) { w.anotherItem(t, c) })
			t.Run("item denied", func(t *testing.T) { w.itemDenied(t, c) })
			t.Run("rights on the item alone", func(t *testing.T) { w.itemAlone(t, name, c) })
		})
	}
}

// documentedRights gives the permissions that the documentation's table has for each field.
func documentedRights(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/authorization.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What each call needs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rights := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) < 2 {
			continue
		}
		for _, field := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[0], -1) {
			rights[field[1]] = cells[1]
		}
	}
	return rights
}

// takesWhatItSays reports whether a denial is for want of the permission that the row begins with.
func takesWhatItSays(denial, row string) bool {
	_, permission, _ := strings.Cut(denial, `"permission":"`)
	permission, _, _ = strings.Cut(permission, `"`)
	return permission != "" && strings.HasPrefix(row, "`"+permission+"`")
}

// kind is what an operation names beside the tenant.
type kind string

const (
	ofNothing kind = "nothing" // not even a tenant
	ofFleet   kind = "fleet"
	ofTenant  kind = "tenant"
	ofAccount kind = "account"
	ofPool    kind = "pool"
	ofRun     kind = "run"
	ofHost    kind = "host"
	ofOrphan  kind = "orphan"
	ofPlan    kind = "plan"    // through an account, which need not be there
	ofToken   kind = "token"   // for the API
	ofBinding kind = "binding" // of an account
	ofNode    kind = "node"    // an account, by its id alone
	ofPools   kind = "pool's node"
	ofRuns    kind = "run's node"
	ofHosts   kind = "host's node"
)

func (k kind) isNode() bool { return k == ofNode || k == ofPools || k == ofRuns || k == ofHosts }

// hangsOnAnother reports whether the right to it is one to an item that the caller does not name.
func (k kind) hangsOnAnother() bool { return k == ofRun || k == ofHost || k == ofOrphan }

// isItem reports whether it is found by its tenant and its id.
func (k kind) isItem() bool { return k == ofAccount || k == ofPool || k.hangsOnAnother() }

const (
	allowed problem.Code = ""
	unasked problem.Code = "-" // it names no item that could be denied
)

// rightsCase is an operation, and what somebody gets who has rights on another item only, or is denied the item that it names.
type rightsCase struct {
	kind         kind
	document     string // of GraphQL, with $tenant and $id
	path, body   string // of REST, with $tenant and $id
	item, denied problem.Code
	shows        kind // what is in the answer where some of it may be read
}

func rightsCases() map[string]rightsCase {
	const (
		no      = problem.Forbidden
		one     = `query($tenant: ID!, $id: ID!) `
		all     = `query($tenant: ID!) `
		change  = `mutation($tenant: ID!, $id: ID!) `
		add     = `mutation($tenant: ID!) `
		binding = `{subject: "user:somebody", role: "provider-viewer", object: $id}`
	)
	return map[string]rightsCase{
		"Query.viewer":            {ofNothing, `{ viewer { subject permissions } }`, "", "", allowed, unasked, ""},
		"Query.server":            {ofNothing, `{ server { version } }`, "", "", allowed, unasked, ""},
		"Query.providers":         {ofNothing, `{ providers { name } }`, "", "", allowed, unasked, ""},
		"Query.node":              {ofNode, `query($id: ID!) { node(id: $id) { id } }`, "", "", allowed, allowed, ofAccount},
		"Query.node of a pool":    {ofPools, `query($id: ID!) { node(id: $id) { id } }`, "", "", allowed, allowed, ofPool},
		"Query.node of a run":     {ofRuns, `query($id: ID!) { node(id: $id) { id } }`, "", "", allowed, allowed, ofRun},
		"Query.node of a host":    {ofHosts, `query($id: ID!) { node(id: $id) { id } }`, "", "", allowed, allowed, ofHost},
		"Query.providerAccount":   {ofAccount, one + `{ providerAccount(tenantId: $tenant, accountId: $id) { id } }`, "", "", no, no, ""},
		"Query.providerAccounts":  {ofTenant, all + `{ providerAccounts(tenantId: $tenant) { nodes { id } } }`, "", "", allowed, unasked, ofAccount},
		"Query.offers":            {ofAccount, one + `{ offers(tenantId: $tenant, accountId: $id) { id } }`, "", "", no, no, ""},
		"Query.bootstrap":         {ofRun, one + `{ bootstrap(tenantId: $tenant, bootstrapId: $id) { id } }`, "", "", no, problem.NotFound, ""},
		"Query.bootstraps":        {ofTenant, all + `{ bootstraps(tenantId: $tenant) { nodes { id } } }`, "", "", allowed, unasked, ofRun},
		"Query.bootstraps of all": {ofFleet, `{ bootstraps(waitReasons: ["CLAIM_UNCERTAIN"], cleanups: [BLOCKED]) { nodes { id } } }`, "", "", no, unasked, ""},
		"Query.orphans of all":    {ofFleet, `{ orphans { nodes { id release { lastError } } } }`, "", "", no, unasked, ""},
		"Query.planBootstrap": {ofPlan, one + `{ planBootstrap(tenantId: $tenant, accountId: $id, poolId: "pool_00000000000000000000000000",
			machineId: "m") { ready preconditions { name ok message code } } }`, "", "", no, no, ""},
		"Query.orphans":      {ofTenant, all + `{ orphans(tenantId: $tenant) { nodes { id } } }`, "", "", allowed, unasked, ofOrphan},
		"Query.pool":         {ofPool, one + `{ pool(tenantId: $tenant, poolId: $id) { id } }`, "", "", no, no, ""},
		"Query.pools":        {ofTenant, all + `{ pools(tenantId: $tenant) { nodes { id } } }`, "", "", allowed, unasked, ofPool},
		"Query.host":         {ofHost, one + `{ host(tenantId: $tenant, hostId: $id) { id } }`, "", "", no, problem.NotFound, ""},
		"Query.apiTokens":    {ofTenant, all + `{ apiTokens(tenantId: $tenant) { nodes { id } } }`, "", "", no, unasked, ""},
		"Query.secrets":      {ofTenant, all + `{ secrets(tenantId: $tenant) { name } }`, "", "", no, unasked, ""},
		"Query.roles":        {ofNothing, `{ roles { name } }`, "", "", allowed, unasked, ""},
		"Query.roleBindings": {ofTenant, all + `{ roleBindings(tenantId: $tenant) { nodes { subject } } }`, "", "", no, unasked, ""},
		"Query.auditEvents":  {ofTenant, all + `{ auditEvents(tenantId: $tenant) { nodes { id } } }`, "", "", no, unasked, ""},

		"Mutation.createProviderAccount": {ofTenant, add + `{ createProviderAccount(input: {tenantId: $tenant, provider: "sim", name: "a"}) { replayed } }`, "", "", no, unasked, ""},
		"Mutation.updateProviderAccount": {ofAccount, change + `{ updateProviderAccount(input: {tenantId: $tenant, accountId: $id}) { providerAccount { id } } }`, "", "", no, no, ""},
		"Mutation.deleteProviderAccount": {ofAccount, change + `{ deleteProviderAccount(input: {tenantId: $tenant, accountId: $id}) { deleted } }`, "", "", no, no, ""},
		"Mutation.bootstrapMachine": {ofAccount, change + `{ bootstrapMachine(input: {tenantId: $tenant, accountId: $id, poolId: "pool_00000000000000000000000000",
			machineId: "m", idempotencyKey: "k"}) { replayed } }`, "", "", no, no, ""},
		"Mutation.checkProviderAccount": {ofAccount, change + `{ checkProviderAccount(input: {tenantId: $tenant, accountId: $id}) { providerAccount { id } } }`, "", "", no, no, ""},
		"Mutation.checkProviderConfig":  {ofTenant, add + `{ checkProviderConfig(input: {tenantId: $tenant, provider: "sim"}) { check { ok } } }`, "", "", no, unasked, ""},
		"Mutation.retryBootstrap":       {ofRun, change + `{ retryBootstrap(input: {tenantId: $tenant, bootstrapId: $id, idempotencyKey: "k"}) { replayed } }`, "", "", no, problem.NotFound, ""},
		"Mutation.releaseMachine":       {ofOrphan, change + `{ releaseMachine(input: {tenantId: $tenant, orphanId: $id, machineId: "m"}) { orphan { id } } }`, "", "", no, problem.NotFound, ""},
		"Mutation.cancelBootstrap":      {ofRun, change + `{ cancelBootstrap(input: {tenantId: $tenant, bootstrapId: $id}) { bootstrap { id } } }`, "", "", no, problem.NotFound, ""},
		"Mutation.resolveClaim":         {ofRun, change + `{ resolveClaim(input: {tenantId: $tenant, bootstrapId: $id, nothingOrdered: true}) { bootstrap { id } } }`, "", "", no, problem.NotFound, ""},
		"Mutation.createPool":           {ofTenant, add + `{ createPool(input: {tenantId: $tenant, name: "a", class: VPS, agent: NONE}) { pool { id } } }`, "", "", no, unasked, ""},
		"Mutation.archivePool":          {ofPool, change + `{ archivePool(input: {tenantId: $tenant, poolId: $id}) { pool { id } } }`, "", "", no, no, ""},
		"Mutation.removeHost":           {ofHost, change + `{ removeHost(input: {tenantId: $tenant, hostId: $id}) { host { id } } }`, "", "", no, problem.NotFound, ""},
		"Mutation.putSecret":            {ofTenant, add + `{ putSecret(input: {tenantId: $tenant, name: "a", value: "b"}) { secret { name } } }`, "", "", no, unasked, ""},
		"Mutation.deleteSecret":         {ofTenant, add + `{ deleteSecret(input: {tenantId: $tenant, name: "a"}) { deleted } }`, "", "", no, unasked, ""},
		"Mutation.createApiToken":       {ofTenant, add + `{ createApiToken(input: {tenantId: $tenant, name: "a"}) { token } }`, "", "", no, unasked, ""},
		"Mutation.revokeApiToken":       {ofToken, change + `{ revokeApiToken(input: {tenantId: $tenant, tokenId: $id}) { revoked } }`, "", "", no, unasked, ""},
		"Mutation.grantRole":            {ofBinding, `mutation($id: String!) { grantRole(input: ` + binding + `) { roleBinding { role } } }`, "", "", no, no, ""},
		"Mutation.revokeRole":           {ofBinding, `mutation($id: String!) { revokeRole(input: ` + binding + `) { revoked } }`, "", "", no, no, ""},
		"Mutation.defineRole":           {ofFleet, `mutation { defineRole(input: {name: "a", permissions: [POOLS_READ]}) { role { name } } }`, "", "", no, unasked, ""},
		"Mutation.deleteRole":           {ofFleet, `mutation { deleteRole(input: {name: "a"}) { deleted } }`, "", "", no, unasked, ""},

		"Subscription.bootstrapStatusChanged": {
			ofRun, `subscription($tenant: ID!, $id: ID!) { bootstrapStatusChanged(tenantId: $tenant, bootstrapId: $id) { to } }`,
			"", "", no, problem.NotFound, "",
		},

		restPath + "create":    {ofTenant, "", "create", `{"tenantId": "$tenant", "provider": "sim", "name": "a"}`, no, unasked, ""},
		restPath + "list":      {ofTenant, "", "list", `{"tenantId": "$tenant"}`, allowed, unasked, ofAccount},
		restPath + "get":       {ofAccount, "", "get", `{"tenantId": "$tenant", "accountId": "$id"}`, no, no, ""},
		restPath + "offers":    {ofAccount, "", "offers", `{"tenantId": "$tenant", "accountId": "$id"}`, no, no, ""},
		restPath + "update":    {ofAccount, "", "update", `{"tenantId": "$tenant", "accountId": "$id"}`, no, no, ""},
		restPath + "delete":    {ofAccount, "", "delete", `{"tenantId": "$tenant", "accountId": "$id"}`, no, no, ""},
		restPath + "bootstrap": {ofAccount, "", "bootstrap", `{"tenantId": "$tenant", "accountId": "$id", "poolId": "pool_00000000000000000000000000", "machineId": "m", "idempotencyKey": "k"}`, no, no, ""},
	}
}

// rightsWorld has two tenants with one of everything.
type rightsWorld struct {
	server        *process
	db            *postgres.DB
	tenant, other string
	tokens        map[string]string
	// Ids by kind: one that is there, one that never was, the other tenant's, and one that was deleted.
	present, absent, foreign, deleted map[kind]string
	granted                           map[kind]string // beside the present ones
}

func newRightsWorld(t *testing.T) *rightsWorld {
	t.Helper()
	w := &rightsWorld{tenant: "mine", other: "theirs"}
	d := newDeployment(t)
	limits, _ := d.settings["limits"].(map[string]any)
	limits["denialsAtMost"] = 1_000_000
	w.present, w.foreign, w.deleted, w.absent = newIDs(), newIDs(), newIDs(), newIDs()
	granted := newIDs()
	w.granted = granted
	account := func(of map[kind]string) string { return "compute-provider-account/" + of[ofAccount] }
	w.tokens = map[string]string{
		"owner":    d.caller("user:owner", "tenant-admin compute-tenant/mine"),
		"other":    d.caller("user:other", "tenant-admin compute-tenant/theirs"),
		"stranger": d.caller("user:stranger"),
		"item":     d.caller("user:item", "tenant-admin "+account(granted), "tenant-admin compute-pool/"+granted[ofPool]),
		"denied":   d.caller("user:denied", "tenant-admin compute-tenant/mine", "!tenant-admin "+account(w.present), "!tenant-admin compute-pool/"+w.present[ofPool]),
	}
	w.server, w.db = d.serve(t), d.db
	for tenant, ids := range map[string]map[kind]string{w.tenant: w.present, w.other: w.foreign} {
		insertAll(t, d, tenant, "first", ids)
	}
	insertAll(t, d, w.tenant, "second", granted)
	insertAll(t, d, w.tenant, "third", w.deleted)
	for _, statement := range []string{
		"DELETE FROM hosts WHERE id = '" + w.deleted[ofHost] + "'",
		"DELETE FROM bootstraps WHERE id = '" + w.deleted[ofRun] + "'",
		"DELETE FROM pools WHERE id = '" + w.deleted[ofPool] + "'",
		"DELETE FROM provider_accounts WHERE id = '" + w.deleted[ofAccount] + "'",
	} {
		if _, err := d.db.Pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func newIDs() map[kind]string {
	account, pool, run, host := id.New("pacct"), id.New("pool"), id.New("boot"), id.New("host")
	return map[kind]string{
		ofAccount: account, ofNode: account, ofPools: pool, ofRuns: run, ofHosts: host, ofBinding: "compute-provider-account/" + account,
		ofPool: pool, ofRun: run, ofHost: host, ofOrphan: id.New("orph"), ofPlan: account, ofToken: id.New("tok"),
	}
}

func insertAll(t *testing.T, d *deployment, tenant, name string, ids map[kind]string) {
	t.Helper()
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES ($1, $2, 'sim', $3, '')`, []any{ids[ofAccount], tenant, name}},
		{`INSERT INTO pools (id, tenant_id, name, class, agent) VALUES ($1, $2, $3, 'vps-host', 'bcd')`, []any{ids[ofPool], tenant, name}},
		{`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id, host_id, joined_at)
			VALUES ($1, $2, $3, $4, '', 'm', 'joined', $1, $5, now())`, []any{ids[ofRun], tenant, ids[ofAccount], ids[ofPool], ids[ofHost]}},
		{
			`INSERT INTO hosts (id, tenant_id, pool_id, bootstrap_id, account_id, machine_id) VALUES ($1, $2, $3, $4, $5, 'm')`,
			[]any{ids[ofHost], tenant, ids[ofPool], ids[ofRun], ids[ofAccount]},
		},
		{
			`INSERT INTO orphans (id, tenant_id, account_id, kind, machine_id) VALUES ($1, $2, $3, 'not-ours', 'm')`,
			[]any{ids[ofOrphan], tenant, ids[ofAccount]},
		},
		{
			`INSERT INTO api_tokens (id, tenant_id, name, subject, token_hash, created_by) SELECT $1, $2, $3, 'service:x', sha256($1::text::bytea), ''
				WHERE $3 <> 'third'`, // tokens are never deleted
			[]any{ids[ofToken], tenant, name},
		},
	} {
		if _, err := d.db.Pool.Exec(t.Context(), s.query, s.args...); err != nil {
			t.Fatal(err)
		}
	}
}

// forbidden asks as somebody without rights: the answer to what is there is that to what is not, byte for byte.
func (w *rightsWorld) forbidden(t *testing.T, c rightsCase) {
	t.Helper()
	code := problem.Forbidden
	if c.kind == ofNothing || c.kind.isNode() {
		code = allowed
	}
	w.wantSame(t, c, w.tokens["stranger"], w.tenant, code, w.present, w.absent, w.foreign, w.deleted)
}

// otherTenant asks for the tenant's things as somebody who rules another, and for another tenant's under the own name.
func (w *rightsWorld) otherTenant(t *testing.T, c rightsCase) {
	t.Helper()
	switch c.kind {
	case ofNothing:
		return
	case ofNode, ofPools, ofRuns, ofHosts: // null, which wantSame compares
		w.wantSame(t, c, w.tokens["other"], w.tenant, allowed, w.present, w.absent, w.deleted)
		return
	case ofFleet:
		w.want(t, c, w.tokens["owner"], w.tenant, "", problem.Forbidden)
		return
	case ofTenant:
		w.want(t, c, w.tokens["other"], w.tenant, "", problem.Forbidden)
		return
	case ofBinding: // an object that is not there is the fleet's
		w.wantSame(t, c, w.tokens["owner"], w.tenant, problem.Forbidden, w.absent, w.foreign, w.deleted)
		return
	case ofPlan: // what is not there is said in the plan
		w.wantSame(t, c, w.tokens["other"], w.tenant, problem.Forbidden, w.present, w.absent, w.foreign, w.deleted)
		w.wantSame(t, c, w.tokens["owner"], w.tenant, allowed, w.absent, w.foreign, w.deleted)
		return
	case ofAccount, ofPool, ofRun, ofHost, ofOrphan, ofToken:
	}
	w.wantSame(t, c, w.tokens["other"], w.tenant, problem.Forbidden, w.present, w.absent, w.foreign, w.deleted)
	w.wantSame(t, c, w.tokens["owner"], w.tenant, problem.NotFound, w.absent, w.foreign, w.deleted)
}

// anotherItem asks as somebody with rights on one item alone: what is there, and not theirs, is answered like what is not.
func (w *rightsWorld) anotherItem(t *testing.T, c rightsCase) {
	t.Helper()
	if c.kind.isItem() || c.kind.isNode() {
		w.wantSame(t, c, w.tokens["item"], w.tenant, c.item, w.present, w.absent, w.foreign, w.deleted)
		return
	}
	w.want(t, c, w.tokens["item"], w.tenant, w.present[c.kind], c.item)
}

// itemDenied asks as somebody from whom the rights are held back on one item alone: where they do not name it, what hangs on it is answered
// like what is not there.
func (w *rightsWorld) itemDenied(t *testing.T, c rightsCase) {
	t.Helper()
	switch {
	case c.denied == unasked:
	case c.kind.hangsOnAnother() || c.kind.isNode():
		w.wantSame(t, c, w.tokens["denied"], w.tenant, c.denied, w.present, w.absent, w.foreign, w.deleted)
	default:
		w.want(t, c, w.tokens["denied"], w.tenant, w.present[c.kind], c.denied)
	}
}

// itemAlone asks as somebody with rights on the item alone: by its own field they get what node gives them.
func (w *rightsWorld) itemAlone(t *testing.T, name string, c rightsCase) {
	t.Helper()
	if !c.kind.isItem() || !strings.HasPrefix(name, "Query.") && name != restPath+"get" {
		return
	}
	if _, got := w.ask(t, c, w.tokens["item"], w.tenant, w.granted[c.kind]); got == problem.Forbidden || got == problem.NotFound {
		t.Errorf("naming %s %s: got %q", c.kind, w.granted[c.kind], got)
	}
}

// wantShown looks into the answers: who has rights on the granted item alone, and who is denied the present one, see the granted one and
// not the present one; who rules the tenant sees both.
func (w *rightsWorld) wantShown(t *testing.T, c rightsCase) {
	t.Helper()
	for caller, present := range map[string]bool{"item": false, "denied": false, "owner": true} {
		for _, ids := range []map[kind]string{w.present, w.granted} {
			body, code := w.ask(t, c, w.tokens[caller], w.tenant, ids[c.kind])
			if code != allowed {
				t.Errorf("%s: %s", caller, code)
			}
			for _, item := range []struct {
				ids  map[kind]string
				seen bool
			}{{w.present, present}, {w.granted, true}} {
				asked := !c.kind.isNode() || item.ids[c.kind] == ids[c.kind]
				if got := strings.Contains(body, item.ids[c.shows]); got != (item.seen && asked) {
					t.Errorf("%s, naming %s: %s is shown = %v: %s", caller, ids[c.kind], item.ids[c.shows], got, body)
				}
			}
		}
	}
}

func (w *rightsWorld) want(t *testing.T, c rightsCase, token, tenant, id string, code problem.Code) {
	t.Helper()
	if _, got := w.ask(t, c, token, tenant, id); got != code {
		t.Errorf("naming %s %s: got %q, want %q", c.kind, id, got, code)
	}
}

// wantSame wants one answer for ids of all these groups, with its status and headers, apart from the id that it repeats.
func (w *rightsWorld) wantSame(t *testing.T, c rightsCase, token, tenant string, code problem.Code, groups ...map[kind]string) {
	t.Helper()
	var first string
	for i, ids := range groups {
		body, got := w.ask(t, c, token, tenant, ids[c.kind])
		if got != code {
			t.Errorf("group %d, naming %s %s: got %q, want %q", i, c.kind, ids[c.kind], got, code)
		}
		if id := ids[c.kind]; id != "" {
			body = strings.ReplaceAll(body, id, "<id>")
		}
		if i == 0 {
			first = body
		}
		if body != first {
			t.Errorf("group %d differs: %s\nfrom %s", i, body, first)
		}
	}
}

// ask gives the answer, without what is another's in each, and its code.
func (w *rightsWorld) ask(t *testing.T, c rightsCase, token, tenant, id string) (string, problem.Code) {
	t.Helper()
	a := w.send(t, c, token, tenant, id)
	if c.path != "" {
		return shape(a), readREST(t, a).Code
	}
	return shape(a), readGraphQL(t, a).Code
}

func (w *rightsWorld) send(t *testing.T, c rightsCase, token, tenant, id string) answer {
	t.Helper()
	if c.path != "" {
		body := strings.NewReplacer("$tenant", tenant, "$id", id).Replace(c.body)
		return w.server.send(t, http.MethodPost, restPath+c.path, token, typeJSON, []byte(body))
	}
	body, err := json.Marshal(map[string]any{"query": c.document, "variables": map[string]any{"tenant": tenant, "id": id}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(c.document, "subscription") {
		return w.server.firstEvent(t, token, body)
	}
	return w.server.send(t, http.MethodPost, graphqlPath, token, typeJSON, body)
}

// shape is all of an answer that could tell two of them apart.
func shape(a answer) string {
	var b strings.Builder
	fmt.Fprintln(&b, a.status)
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		if name != "Date" && name != "X-Request-Id" {
			fmt.Fprintln(&b, name, a.header[name])
		}
	}
	b.Write(a.body)
	return b.String()
}

// firstEvent opens an event stream and gives its first message as if it were the answer.
func (s *process) firstEvent(t testing.TB, token string, body []byte) answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+graphqlPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Content-Type", typeJSON)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		if a.body, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return a
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			a.body = bytes.Clone(data)
			return a
		}
	}
	t.Fatalf("the stream ended without a message: %v", lines.Err())
	return a
}

// rootFields lists "Query.node" and so on, as the server itself tells.
func (w *rightsWorld) rootFields(t *testing.T) (names []string) {
	t.Helper()
	out := w.server.execute(t, w.tokens["stranger"], `{ __schema { queryType { ...f } mutationType { ...f } subscriptionType { ...f } } }
		fragment f on __Type { name fields { name } }`, nil)
	if out.Code != "" {
		t.Fatalf("introspection: %+v", out)
	}
	types, _ := member(out.Data, "__schema").(map[string]any)
	for _, root := range types {
		fields, _ := member(root, "fields").([]any)
		for _, f := range fields {
			typeName, _ := member(root, "name").(string)
			fieldName, _ := member(f, "name").(string)
			names = append(names, typeName+"."+fieldName)
		}
	}
	if len(names) < 20 {
		t.Fatalf("introspection found %v only", names)
	}
	return names
}

func restRoutes(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(openapiFile)
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := member(parse(t, text), "paths").(map[string]any)
	return slices.Collect(maps.Keys(paths))
}

// denials counts what the audit log has of the caller without rights.
func (w *rightsWorld) denials(t *testing.T) (n int) {
	t.Helper()
	err := w.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE outcome = 'denied' AND actor = 'user:stranger'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
