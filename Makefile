# Everything a developer, CI and a newcomer types. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
# VERSION is all that a binary says of its sources, so that a build needs no git.
GO_BUILD := go build -buildvcs=false -ldflags "-X main.version=$(VERSION)"
# The agent runs on machines that we know nothing about, so it is linked statically.
GO_AGENT := CGO_ENABLED=0 GOOS=linux go build -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)"

# Tools are built once per version.
TOOLS := .cache/bin
LINT_VERSION := v2.15.0
LINT := $(TOOLS)/golangci-lint-$(LINT_VERSION)
DEADCODE_VERSION := v0.52.0
DEADCODE := $(TOOLS)/deadcode-$(DEADCODE_VERSION)
VULN_VERSION := v1.9.0
VULN := $(TOOLS)/govulncheck-$(VULN_VERSION)

# The disk that machines of nightly tests begin with, made once.
VM_IMAGE := .cache/vm/debian.qcow2

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: run
run: build ## Run the whole product on this machine; prints a line with URL and token when ready
	exec bin/compute-api dev $(ARGS)

.PHONY: build
build: console/dist/index.html ## Build bin/compute-api and the agent for each architecture
	@mkdir -p bin
	$(GO_BUILD) -o bin/compute-api ./cmd/compute-api
	GOARCH=amd64 $(GO_AGENT) -o bin/bcd-linux-amd64 ./cmd/bcd
	GOARCH=arm64 $(GO_AGENT) -o bin/bcd-linux-arm64 ./cmd/bcd
	ln -sf bcd-linux-$$(go env GOARCH) bin/bcd

.PHONY: console
console: ## Build the web console, which the next build embeds
	@scripts/console

# As part of a build only when its sources have changed, and nothing that stops the build: a server without the console works.
console/dist/index.html: $(shell find console/src console/public console/scripts console/index.html console/package-lock.json console/vite.config.ts -type f)
	@scripts/console || echo "console: not built; the server will say so at /" >&2

.PHONY: test-console
test-console: deps build ## Check the console's types, style and generated code, and use it in a browser
	@scripts/test-console

.PHONY: console-shots
console-shots: build ## Take a picture of each page of the console in both themes and at phone width, into console/screenshots
	cd console && SHOTS=1 npm run --silent test

.PHONY: test
test: deps verify lint lint-schema test-go test-console ## What CI runs, with smaller tortures

.PHONY: check
check: test ## The same as test

.PHONY: test-go
test-go: export FIGURES := $(CURDIR)/.cache/figures.txt
test-go: deps build ## All Go tests under the race detector, other people's clients among them; bounds of CPU without it; the figures of all at the end
	@mkdir -p .cache && : > $(FIGURES)
	@trap 'cat $(FIGURES)' EXIT; set -x; \
	go test -race -timeout 60m ./...; \
	go test -count 1 -v -run '^TestHostile' ./server ./apitest; \
	go test -tags planted_nocheck -count 1 ./apitest/walls

.PHONY: deps
deps: ## Install what the tests need and is missing: Debian packages when root, npm packages
	@scripts/deps

.PHONY: generate
generate: ## Regenerate what the schema makes: graph, models_gen.go, resolver stubs
	rm -f graph/*.generated.go
	go run ./graph/generate

.PHONY: verify
verify: ## Fail when generated files, go.mod or formatting are not up to date
	@scripts/verify

.PHONY: lint
lint: $(LINT) $(DEADCODE) ## Lint the Go code, and look for functions that nothing reaches
	$(LINT) run ./...
	@dead=$$($(DEADCODE) -tags nightly -test ./...); if [[ $$dead ]]; then echo "$$dead"; exit 1; fi

.PHONY: fmt
fmt: $(LINT) ## Format the Go code as the linter wants it
	$(LINT) fmt

.PHONY: lint-schema
lint-schema: deps ## Lint the GraphQL schema
	cd schema && npm run --silent lint

.PHONY: snapshot
snapshot: ## Take the present schema as the released one
	go test ./graph/schematest -run TestSnapshot -update

.PHONY: vuln
vuln: $(VULN) ## Look for known vulnerabilities; GOVULNDB names another database than Go's
	$(VULN) -db $(or $(GOVULNDB),https://vuln.go.dev) ./...

.PHONY: vuln-console
vuln-console: ## Look for known vulnerabilities in the console's packages
	cd console && npm audit --audit-level high

.PHONY: torture-outbox
torture-outbox: ## Lose, repeat or reorder no event: writers, readers and connections that are killed; SEED repeats a run
	go test ./apitest/streams -run 'TestOutbox|TestReconnects' -count 1 -v -timeout 60m -events 200000 -reconnects 500 -seed $(or $(SEED),0)

.PHONY: torture-streams
torture-streams: ## Open 5,000 subscriptions on one server; SEED repeats a run
	go test ./apitest/streams -run 'TestSubscriptions' -count 1 -v -timeout 60m -subscriptions 5000 -seed $(or $(SEED),0)

.PHONY: torture-providers
torture-providers: ## Break answers of vendors in every way, for each driver that speaks HTTP: MUTATIONS=5000 SEED=
	MUTATIONS=$(or $(MUTATIONS),5000) SEED=$(or $(SEED),0) go test ./provider/... -run '^TestMutants' -count 1 -v -timeout 60m

.PHONY: torture-walls
torture-walls: ## Send 50,000 requests at each of: both walls between tenants, either alone, none; SEED repeats a run
	go test ./apitest/walls -count 1 -v -timeout 180m -requests 50000 -seed $(or $(SEED),0)
	go test -tags planted_nocheck ./apitest/walls -count 1 -v -timeout 180m -requests 50000 -seed $(or $(SEED),0)

.PHONY: torture-executor
torture-executor: ## Answer 100,000 made-up selections by plan and by the executor alone, and compare: EXECUTIONS=100000 SEED=1
	go test ./server -run '^TestSelectionsByBothExecutors$$' -count 1 -v -timeout 60m -executions $(or $(EXECUTIONS),100000) -execution-seed $(or $(SEED),1)

.PHONY: torture-audit
torture-audit: ## Chain and verify a million audit rows, and tamper with a log a thousand times: ROWS=1000000
	AUDIT_ROWS=$(or $(ROWS),1000000) go test ./audit -run 'TestABacklog|TestTampering|TestAnHonest' -count 1 -v -timeout 60m

.PHONY: torture-bootstrap
torture-bootstrap: ## Kill servers between any two writes, on every claim mode, and mislead them: KILLS=300 BOOTSTRAPS=600 SEED=
	KILLS=$(or $(KILLS),300) BOOTSTRAPS=$(or $(BOOTSTRAPS),600) go test ./apitest/torture -run '^Test(Bootstraps|OrderLimit)$$' -count 1 -v -timeout 180m

.PHONY: torture-pauses
torture-pauses: ## Stop servers at every point for longer than their leases: PAUSES=60 SEED=
	PAUSES=$(or $(PAUSES),60) go test ./apitest/torture -run '^TestPauses$$' -count 1 -v -timeout 60m

.PHONY: torture-joins
torture-joins: ## Have many agents join with one token over two servers: TOKENS=100 ASKING=64 SEED=
	TOKENS=$(or $(TOKENS),100) ASKING=$(or $(ASKING),64) go test ./apitest/torture -run '^TestJoins$$' -count 1 -v -timeout 60m

.PHONY: torture-histories
torture-histories: ## Check that calls with keys are linearizable while servers die: HISTORIES=20 CALLS=1000 SEED=
	HISTORIES=$(or $(HISTORIES),20) CALLS=$(or $(CALLS),1000) go test ./apitest/torture -run '^TestHistories$$' -count 1 -v -timeout 60m

.PHONY: torture-races
torture-races: ## Have two tenants want one machine, by one name or by several: RACES=200
	RACES=$(or $(RACES),200) go test ./apitest/torture -run '^TestRaces' -count 1 -v -timeout 60m

.PHONY: torture-clocks
torture-clocks: ## Kill servers whose clocks are 20 minutes apart: CLOCKS=20 kills, SEED=
	CLOCKS=$(or $(CLOCKS),20) go test ./apitest/torture -run '^TestClocks$$' -count 1 -v -timeout 60m

.PHONY: torture-database
torture-database: ## Stop the database hard while clients write: CRASHES=10
	CRASHES=$(or $(CRASHES),10) go test ./apitest/torture -run '^TestDatabaseCrashes$$' -count 1 -v -timeout 60m

.PHONY: torture-upgrade
torture-upgrade: ## Upgrade two servers that are written to, from FROM= a commit: that before the newest migration
	FROM=$(or $(FROM),$(shell git log -1 --format=%h~1 -- migrations)) go test ./apitest/torture -run '^TestUpgrade$$' -count 1 -v -timeout 60m

.PHONY: torture-states
torture-states: ## Let the time of each state of a run go by, and cancel in each, twice and during each call
	go test ./bootstrap -run '^Test(EveryStateEndsInItsReason|CancelDuringEveryCall|CancelInEveryState)$$' -count 1 -v -timeout 10m

.PHONY: torture-hosts
torture-hosts: ## Reboot, cut off, fill up and misdate machines amid their runs
	go test ./apitest/e2e -run '^TestTroubleMidway$$' -count 1 -v -timeout 10m

.PHONY: torture-requests
torture-requests: ## Look for FUZZTIME for a certificate request of which more than the key is taken
	go test ./internal/pki -run '^$$' -fuzz '^FuzzParseCSR$$' -fuzztime $(FUZZTIME)

.PHONY: torture-planted
torture-planted: ## Plant bugs, one at a time, and see which test finds each: PLANTED= a part of a name
	PLANTED="$(or $(PLANTED),all)" go test ./apitest/torture -run '^TestPlanted$$' -count 1 -v -timeout 180m

.PHONY: torture
torture: $(sort $(filter torture-%,$(shell sed -n 's/^\(torture-[a-z]*\):.*/\1/p' Makefile))) ## Each torture, one after the other

.PHONY: torture-vault
torture-vault: ## Try to leave a tenant's prefix in a vault with 100,000 references; SEED repeats a run
	go test ./secret -run '^TestNoReferenceLeavesItsTenant$$' -count 1 -v -timeout 60m -references 100000 -reference-seed $(or $(SEED),0)

.PHONY: bench
bench: build ## Load the server beside a bare handler and print the ratios
	go run ./apitest/bench

.PHONY: torture-authz
torture-authz: ## Change roles, bindings and a token for 5 minutes beside decisions, under the race detector; SEED repeats a run
	go test -race ./authz -run '^TestPolicyStorm$$' -count 1 -v -timeout 60m -storm 5m -seed $(or $(SEED),0)

.PHONY: bench-decisions
bench-decisions: ## What a decision costs beside 10, 1,000 and 100,000 tenants, and a subject in memory
	go test ./authz -run - -bench '^BenchmarkDecisions$$' -benchtime 1x -timeout 30m

.PHONY: torture-restart
torture-restart: ## Restart two replicas 20 times in turn under reads, mutations and streams
	go test ./apitest -run '^TestRollingRestart$$' -count 1 -v -timeout 60m -restarts 20

.PHONY: torture-revocation
torture-revocation: ## Take 1,000 rights and tokens away under 200 streams on two replicas, half of them unheard; SEED repeats a run
	go test ./apitest -run '^TestRevocation$$' -count 1 -v -timeout 60m -revocations 1000 -revoked-streams 200 -revoke-seed $(or $(SEED),1)

.PHONY: torture-neighbours
torture-neighbours: ## Have one caller take all it can get on 150 connections, and look at what is left for another: NEIGHBOUR_CALLS=2000
	go test ./apitest -run '^TestOneCallerLeavesRoom$$' -count 1 -v -timeout 60m -neighbour-calls $(or $(NEIGHBOUR_CALLS),2000)

.PHONY: torture-timing
torture-timing: ## Tell ids that never were, are another tenant's or were deleted apart by the time that operations take: SAMPLES=2000 SEED=
	go test ./apitest -run '^TestTimingOfIDs$$' -count 1 -v -timeout 180m -timing-samples $(or $(SAMPLES),2000) -timing-seed $(or $(SEED),0)

.PHONY: nightly
nightly: nightly-libvirt nightly-openstack ## Try drivers on what is too slow for CI: see docs/nightly.md

.PHONY: nightly-deps
nightly-deps:
	@[[ $$(id -u) == 0 ]] || { echo "nightly: it needs root, for daemons and networks of its own" >&2; exit 1; }
	@scripts/deps nightly

.PHONY: nightly-libvirt
nightly-libvirt: $(VM_IMAGE) ## Make a host of a virtual machine that QEMU boots Debian on, without hardware to help
	VM_IMAGE=$(CURDIR)/$(VM_IMAGE) go test -tags nightly ./provider/libvirt -run '^TestVM$$' -count 1 -v -timeout 90m

.PHONY: nightly-openstack
nightly-openstack: nightly-deps ## Order, install and release servers of a Nova that runs here, and make hosts of them
	go test -tags nightly ./provider/openstack -run '^TestNova$$' -count 1 -v -timeout 90m

$(VM_IMAGE): scripts/vm-image | nightly-deps
	scripts/vm-image $@

FUZZTIME ?= 5m
.PHONY: fuzz
fuzz: ## Look for FUZZTIME for requests that are dear before they are executed
	@scripts/fuzz $(FUZZTIME)

$(LINT):
	GOBIN=$(CURDIR)/$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@

$(DEADCODE):
	GOBIN=$(CURDIR)/$(TOOLS) go install golang.org/x/tools/cmd/deadcode@$(DEADCODE_VERSION)
	mv $(TOOLS)/deadcode $@

$(VULN):
	GOBIN=$(CURDIR)/$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(VULN_VERSION)
	mv $(TOOLS)/govulncheck $@
