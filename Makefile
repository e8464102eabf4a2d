# Everything that contributors and CI run. `make` or `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
BIN      := bin
SERVICES := apiserver authn-webhook authz-webhook tokencleaner bootstrapsigner controllers console
# Static binaries; only the race detector needs cgo.
export CGO_ENABLED ?= 0
# Binaries have no symbol table and no debug information, unless DEBUG is set. The tag nomsgpack
# excludes an encoding of gin that no service uses, and grpcnotrace pages of gRPC that need templates.
DEBUG    ?=
BUILD     = $(GO) build -trimpath -tags=nomsgpack,grpcnotrace $(if $(DEBUG),,-ldflags="-s -w")
# The e2e module has its own go.mod, so that its clients are not ours.
E2E      := $(wildcard e2e/go.mod)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The binary of up and ha.
.PHONY: $(BIN)/binnacle
$(BIN)/binnacle:
	@[ -e $@ ] || echo "building $@; the first build takes several minutes"
	@$(BUILD) -o $@ ./cmd/binnacle

.PHONY: up
up: $(BIN)/binnacle ## Build and run the whole suite on this machine; Ctrl-C stops it; UP="--port=7443" for more
	@exec $(BIN)/binnacle up --dir=.local $(UP)

.PHONY: ha
ha: $(BIN)/binnacle ## Run three API servers, two of everything else, etcd and NATS clusters; processes that exit are restarted, kill -HUP restarts all one by one
	@exec $(BIN)/binnacle ha --dir=.local-ha $(UP)

.PHONY: build
build: ## Build every service into bin/; DEBUG=1 keeps what a debugger needs
	@mkdir -p $(BIN)
	@for s in $(SERVICES); do echo "build $$s"; $(BUILD) -o $(BIN)/$$s ./services/$$s; done

# The commit that quick compares the tree with.
BASE ?= $(shell git merge-base HEAD "$$(git rev-parse -q --verify origin/main || echo main)")

.PHONY: quick
quick: ## Check formatting, vet the packages that differ from main, and run the short tests of them and of their importers; of all if none differs
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted; run make fmt:"; echo "$$unformatted"; exit 1; fi
	@packages=$$(tools/affected $(BASE)); if [ -z "$$packages" ]; then echo "no package differs from $(BASE)"; else \
		$(GO) vet $$(tools/affected $(BASE) --changed); $(GO) test -short -vet=off -p 4 $$packages; fi

.PHONY: test
test: vet test-unit test-race test-e2e test-http2 test-differential ## Run everything that CI runs

# Tools are a module of their own, so that the product does not depend on them.
$(BIN)/staticcheck: tools/go.mod tools/go.sum
	@mkdir -p $(BIN)
	$(GO) build -C tools -o $(abspath $@) honnef.co/go/tools/cmd/staticcheck

$(BIN)/govulncheck: tools/go.mod tools/go.sum
	@mkdir -p $(BIN)
	$(GO) build -C tools -o $(abspath $@) golang.org/x/vuln/cmd/govulncheck

.PHONY: check
check: vet staticcheck vuln ## Check formatting; find mistakes with go vet and staticcheck, and known vulnerabilities

.PHONY: staticcheck
staticcheck: $(BIN)/staticcheck ## Look for mistakes with staticcheck
	$(BIN)/staticcheck ./...
	$(if $(E2E),cd e2e && $(abspath $(BIN)/staticcheck) ./...)

# The database of vulnerabilities is on the net.
VULNDB := https://vuln.go.dev

.PHONY: vuln
vuln: ## Look for known vulnerabilities that the code reaches, where their database can be reached
	@if curl -sfm 20 -o /dev/null $(VULNDB)/index/db.json; then $(MAKE) --no-print-directory $(BIN)/govulncheck && $(BIN)/govulncheck -db $(VULNDB) ./...; else echo "govulncheck is skipped: $(VULNDB) cannot be reached"; fi

.PHONY: vet
vet: ## Check formatting and vet the code
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted; run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(if $(E2E),cd e2e && $(GO) vet ./...)

# Packages whose purpose is state that goroutines share: connections, caches, queues, logs, the
# fan-out. make test runs only their tests with the race detector, because it compiles every
# dependency again and slows tests down several times. With -short, random models make a fifth of
# their checks. make nightly has all packages and checks.
RACE := $(addprefix ./libs/,filewatch serving/... task) \
	$(addprefix ./services/apiserver/internal/,api/apiset cache/memory cache/valuedict cache/watchcache \
	proxy/upgrade security/audit security/flowcontrol/... storage/fanout storage/memstore)

.PHONY: test-unit
test-unit: ## Run the tests of the main module, except those of make test-race
	$(GO) test -vet=off -p 3 -timeout 15m $$(comm -23 <($(GO) list ./... | sort) <($(GO) list $(RACE) | sort))
	$(GO) -C tools test ./...
	@for m in third_party/*; do $(GO) -C $$m test ./... || exit 1; done

.PHONY: test-race
test-race: ## Run the tests of packages where goroutines meet, with the race detector
	CGO_ENABLED=1 $(GO) test -race -short -vet=off -p 3 -timeout 15m $(RACE)

# Every fuzz target there is, as "FOLDER NAME".
FUZZ_TARGETS = grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' cmd deploy libs services | sed 's|/[^/]*:func | |' | sort -u
# How long each runs.
FUZZTIME ?= 2m

.PHONY: fuzz
fuzz: ## Fuzz all decoders of untrusted input, FUZZTIME (2m) each
	@$(FUZZ_TARGETS) | while read -r dir name; do \
		echo "fuzz $$dir $$name"; \
		out=$$($(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s ./$$dir 2>&1) || { echo "$$out"; exit 1; }; \
	done

# The binaries have no coverage instrumentation, so that nothing is compiled again; make
# fuzz has it. A deadline of the go command that ends a target is no failure.
FUZZBIN := $(BIN)/fuzz
test-fuzz: FUZZTIME = 2s

.PHONY: test-fuzz
test-fuzz: ## Fuzz each target for 2 seconds, with the race detector; make test runs the seeds only
	@mkdir -p $(FUZZBIN)
	@$(FUZZ_TARGETS) | cut -d' ' -f1 | uniq | CGO_ENABLED=1 xargs -P 2 -I{} sh -c '$(GO) test -c -race -ldflags="-s -w" -o "$(FUZZBIN)/$$(echo {} | tr / _).test" ./{}'
	@$(FUZZ_TARGETS) | xargs -P 2 -L 1 bash -c ' \
		out=$$(cd "$$0" && "$(abspath $(FUZZBIN))/$$(echo "$$0" | tr / _).test" -test.run="^$$" -test.fuzz="^$$1$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=5s -test.fuzzcachedir="$(abspath $(FUZZBIN))/cache/$$0" -test.parallel=1 -test.timeout=5m 2>&1) \
			|| { [[ "$$out" = *"context deadline exceeded"* && "$$out" != *"Failing input"* ]]; } || { echo "fuzz $$0 $$1"; echo "$$out"; exit 1; }; \
		echo "fuzz $$0 $$1: $$(echo "$$out" | grep -o "execs: [0-9]*" | tail -1)"'

# Faults, hostile clients, large clusters and containers take minutes each, and extension servers
# compile k8s.io/apiserver: make test-faults and make nightly run them.
E2E_TESTS := $(addprefix ./,cmd/... golden/... harness/... openapi/... reviews/... robustness/check/... robustness/history/... scenarios/... slowclients/...)
# Scenarios that replace every process of a replicated suite, delete 10,000 objects, or compile
# further programs. They run in make test-faults and make nightly.
E2E_LONG := ^(TestRollingRestart|TestReplicasFollowRestoredStore|TestEnvtestAssets|TestCascadeSurvivesFaults)$$

# Most scenarios wait for processes, so more packages than cores are tested at a time.
# The go command does not see that a result depends on programs outside the e2e module:
# -count=1 keeps it from reusing one.
.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests against real processes
	cd e2e && $(GO) test -vet=off -count=1 -p 4 -timeout 20m -skip '$(E2E_LONG)' $(E2E_TESTS)

# Tests that depend on the HTTP/2 server: whole responses, watches, upgrades, kubectl, restarts.
HTTP2_TESTS := TestGolden|TestInformers|TestKubectl$$|TestKubectlReachesPods|TestWatchResumesAfterRestart|TestWritesSurviveKill

.PHONY: test-http2
test-http2: ## Run golden conversations and scenarios of protocols with --http2-implementation=standard
	cd e2e && BINNACLE_HTTP2=standard $(GO) test -vet=off -count=1 -timeout 30m -run '$(HTTP2_TESTS)' ./golden ./scenarios

# make conformance-tools TOOLS=kube-apiserver puts it there; building it takes several minutes.
CACHED_REFERENCE = $(firstword $(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/binnacle-conformance/v*/kube-apiserver))

.PHONY: test-differential
test-differential: ## Run the differential test with 1,000 requests where make conformance-tools has built kube-apiserver
	@if [ -n "$(CACHED_REFERENCE)" ]; then $(MAKE) --no-print-directory differential REQUESTS=1000 SEED=1; else echo "the differential test is skipped: kube-apiserver is not in the user's cache; make conformance-tools builds it"; fi

.PHONY: test-faults
test-faults: ## Run the short forms of robustness, hostile clients, scale and containers, and the scenarios that make test leaves out
	cd e2e && $(GO) test -vet=off -count=1 -timeout 30m ./robustness ./hostile ./scale
	cd e2e && $(GO) test -vet=off -count=1 -timeout 30m -run '$(E2E_LONG)' ./scenarios
	cd e2e && $(GO) test -vet=off -count=1 -timeout 30m ./aggregation
	$(MAKE) test-containers

.PHONY: test-containers
test-containers: ## Break a composition of containers by a few faults, where Docker answers; BINNACLE_CONTAINERS=more for faults of every kind, the console and swapped parts
	cd e2e && $(GO) test -vet=off -count=1 -timeout 40m ./containers

.PHONY: nightly
nightly: ## Run the long forms: everything with the race detector, fuzzing, robustness, hostile and slow clients, scale, containers, Kubernetes' integration tests and conformance specs
	CGO_ENABLED=1 BINNACLE_H2DIFF=long $(GO) test -race -vet=off -timeout 60m ./...
	$(MAKE) staticcheck vuln
	cd e2e && $(GO) test -vet=off -count=1 -timeout 60m ./scale ./aggregation/... ./scenarios
	BINNACLE_HTTP2=standard $(MAKE) test-e2e
	cd e2e && BINNACLE_SLOWCLIENTS=long $(GO) test -count=1 -v -vet=off -timeout 60m ./slowclients
	$(MAKE) fuzz robustness hostile containers integration conformance
	$(MAKE) conformance SUITE=1
	$(MAKE) conformance CONTROLLERS=own FOCUS="$(CONTROLLER_SPECS)"
	$(MAKE) differential REQUESTS=100000
	$(MAKE) operators SAMPLES=0

.PHONY: bench
bench: build ## Measure speed and memory (nothing is asserted)
	cd e2e && $(GO) run ./bench

.PHONY: robustness
robustness: build ## Check the watch guarantees while processes are killed and links are cut
	cd e2e && BINNACLE_ROBUSTNESS=long $(GO) test -count=1 -v -timeout 60m ./robustness/...

.PHONY: hostile
hostile: build ## Attack a server that a well-behaved client uses
	cd e2e && BINNACLE_HOSTILE=long $(GO) test -count=1 -v -timeout 60m ./hostile

.PHONY: images
images: ## Make container images with docker, podman or buildah; IMAGES="--arch=amd64,arm64 --tag=v1" for more
	$(GO) run ./deploy/images $(IMAGES)

.PHONY: dist
dist: ## Make a release in dist/: archives for amd64 and arm64, checksums, bills of materials, provenance; DIST="--version=v1.0.0" for more
	$(GO) run ./deploy/dist $(DIST)

# Where envtest looks for what it starts; KUBEBUILDER_ASSETS names the folder.
ENVTEST  ?= $(BIN)/envtest

.PHONY: envtest
envtest: ## Lay out the API server, etcd and kubectl for controller-runtime's envtest, in bin/envtest; prints KUBEBUILDER_ASSETS
	@mkdir -p $(ENVTEST)
	@$(BUILD) -o $(ENVTEST)/kube-apiserver ./services/apiserver
	@cd e2e && $(GO) build -o $(abspath $(ENVTEST))/etcd ./cmd/etcd
	@$(MAKE) --no-print-directory -s kubectl
	@cp $(BIN)/kubectl $(ENVTEST)/kubectl
	@echo "export KUBEBUILDER_ASSETS=$(abspath $(ENVTEST))"

.PHONY: compose
compose: ## Build images and run the suite in containers, with docker; COMPOSE="--port=7443" for more
	$(GO) run ./deploy/compose up $(COMPOSE)

.PHONY: compose-down
compose-down: ## Remove the containers of make compose; the data stays
	$(GO) run ./deploy/compose down $(COMPOSE)

.PHONY: containers
containers: ## Kill, pause and disconnect the containers of a composition under load; takes long
	cd e2e && BINNACLE_CONTAINERS=long $(GO) test -count=1 -v -timeout 120m ./containers

.PHONY: kubectl
kubectl: ## Build kubectl into bin/, for machines without one
	@mkdir -p $(BIN)
	cd e2e && $(GO) build -o ../$(BIN)/kubectl -ldflags "-X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubectl | sed 's/^v0/v1/') -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=33" ./cmd/kubectl

# Programs and tests of Kubernetes are compiled from the module cache, into a folder of the user's cache.
CONFORMANCE := cd e2e/conformance && GOFLAGS="$(GOFLAGS) -mod=mod"
# The programs that make conformance-tools builds, separated by commas; all if empty.
TOOLS ?=
# The packages of integration tests, below test/integration, and a pattern of the tests in them.
PKG ?=
RUN ?=

.PHONY: conformance-tools
conformance-tools: ## Build e2e.test and the programs of Kubernetes into the user's cache; TOOLS=kubectl,kubeadm for some
	$(CONFORMANCE) $(GO) run ./tools -only="$(TOOLS)"

# FOCUS selects conformance specs. SUITE=1 runs all services of the suite. With CONTROLLERS=own the service
# controllers takes the place of the same controllers of kube-controller-manager.
FOCUS       ?=
SUITE       ?=
CONTROLLERS ?=
# Specs of what the service controllers does.
CONTROLLER_SPECS := sig-api-machinery. (Namespaces|Garbage collector|ResourceQuota)|sig-auth. ServiceAccounts

.PHONY: conformance
conformance: ## Run the conformance specs of Kubernetes that need no container; FOCUS=pattern for some, SUITE=1, CONTROLLERS=own
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/binnacle ./cmd/binnacle
	$(MAKE) --no-print-directory conformance-tools TOOLS=e2e.test,ginkgo,kubectl,kube-controller-manager,kube-scheduler,kwok
	$(CONFORMANCE) $(GO) run ./conformance -binnacle=$(abspath $(BIN))/binnacle -focus="$(FOCUS)" $(if $(SUITE),-suite) $(if $(filter own,$(CONTROLLERS)),-own-controllers)

# Specs that need no cluster DNS, second node or further image.
NODE_SPECS := sig-node. (ConfigMap|Secrets|Downward|Containers|Security|Variable|Pods )|sig-storage. (ConfigMap|EmptyDir volumes|Projected|Secrets|Downward|Subpath)

.PHONY: conformance-nodes
conformance-nodes: ## Run conformance specs with this machine as a node (root, containerd, CNI plugins); FOCUS=pattern for some
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/binnacle ./cmd/binnacle
	$(MAKE) --no-print-directory conformance-tools TOOLS=e2e.test,ginkgo,kubectl,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,agnhost
	$(CONFORMANCE) $(GO) run ./conformance -binnacle=$(abspath $(BIN))/binnacle -node -focus="$(or $(FOCUS),$(NODE_SPECS))"

.PHONY: integration
integration: ## Run integration tests of Kubernetes against the API server; PKG="auth tls" RUN=TestName for some
	@mkdir -p $(BIN)
	$(BUILD) -o $(BIN)/apiserver ./services/apiserver
	cd e2e && $(GO) build -o ../$(BIN)/etcd ./cmd/etcd
	$(CONFORMANCE) $(GO) run ./integration -bin=$(abspath $(BIN)) -run="$(RUN)" $(if $(PKG),-packages="$(PKG)")

# The number of requests to each server, and the seed that they depend on.
REQUESTS ?= 5000
SEED     ?= 1

.PHONY: differential
differential: ## Send random requests to kube-apiserver and to the API server and compare the responses; REQUESTS=100000 SEED=2 RUN=^pods for other requests
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/apiserver ./services/apiserver
	cd e2e && $(GO) build -o ../$(BIN)/etcd ./cmd/etcd
	$(CONFORMANCE) $(GO) run ./tools -only=kube-apiserver
	$(CONFORMANCE) $(GO) run ./differential -bin=$(abspath $(BIN)) -requests=$(REQUESTS) -seed=$(SEED) -only="$(RUN)"

# The number of samples of a version of a custom resource.
SAMPLES ?= 5

.PHONY: operators
operators: ## Send definitions and samples of operator projects to kube-apiserver and to the API server and compare the responses; RUN=^kueue for some, SAMPLES=0 for all samples
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/apiserver ./services/apiserver
	cd e2e && $(GO) build -o ../$(BIN)/etcd ./cmd/etcd
	$(CONFORMANCE) $(GO) run ./tools -only=kube-apiserver
	$(CONFORMANCE) $(GO) run ./operators -bin=$(abspath $(BIN)) -samples=$(SAMPLES) -seed=$(SEED) -only="$(RUN)"

.PHONY: operator-suites
operator-suites: envtest ## Run the envtest suites of operator projects on the API server; RUN=^lws for some
	$(CONFORMANCE) $(GO) run ./operators -suites=$(abspath $(ENVTEST)) -only="$(RUN)"

# The minor version of Kubernetes that api-diff reads.
VERSION ?=

.PHONY: api-diff
api-diff: ## Print what the API lacks of another minor version of Kubernetes: VERSION=1.34
	@$(GO) -C tools run ./apidiff -root .. -version "$(VERSION)"

.PHONY: cover
cover: ## Write the coverage of the main module's tests, across packages, to cover.html
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -html=cover.out -o cover.html
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: clean
clean: ## Remove binaries, and the data and certificates of make up
	rm -rf $(BIN) dist .local .local-ha .local-compose cover.out cover.html
