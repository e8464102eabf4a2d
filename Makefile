# Everything that people and CI run. `make` or `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
BIN      := bin
SERVICES := apiserver authn-webhook authz-webhook tokencleaner bootstrapsigner
# Static binaries; only the race detector needs cgo.
export CGO_ENABLED ?= 0
# The e2e module has its own go.mod, so that its clients are not ours.
E2E      := $(wildcard e2e/go.mod)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: ## Build and run the whole suite on this machine; Ctrl-C stops it
	@$(GO) build -o $(BIN)/local ./deploy/local
	@exec $(BIN)/local --bin-dir=$(BIN)

.PHONY: ha
ha: ## Run three API servers, two of everything else, etcd and NATS clusters; what dies is started again, kill -HUP restarts all one by one
	@$(GO) build -o $(BIN)/local ./deploy/local
	@exec $(BIN)/local --ha --dir=.local-ha --bin-dir=$(BIN)

.PHONY: build
build: ## Build every service into bin/
	@mkdir -p $(BIN)
	@for s in $(SERVICES); do echo "build $$s"; $(GO) build -o $(BIN)/$$s ./services/$$s; done

.PHONY: test
test: check test-unit test-e2e ## Run everything that CI runs

.PHONY: check
check: ## Check formatting and vet the code
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted; run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(if $(E2E),cd e2e && $(GO) vet ./...)

.PHONY: test-unit
test-unit: ## Run the tests of the main module, with the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 15m ./...

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests against real processes
	$(if $(E2E),cd e2e && $(GO) test -timeout 20m ./...)

.PHONY: bench
bench: build ## Measure speed and memory (nothing is asserted)
	cd e2e && $(GO) run ./bench

.PHONY: robustness
robustness: build ## Check the watch guarantees while parts are killed and cut off
	cd e2e && BINNACLE_ROBUSTNESS=long $(GO) test -count=1 -v -timeout 60m ./robustness/...

.PHONY: hostile
hostile: build ## Attack a server while a well-behaved client goes on
	cd e2e && BINNACLE_HOSTILE=long $(GO) test -count=1 -v -timeout 60m ./hostile

.PHONY: images
images: ## Make container images with docker, podman or buildah; IMAGES="--arch=amd64,arm64 --tag=v1" for more
	$(GO) run ./deploy/images $(IMAGES)

.PHONY: kubectl
kubectl: ## Build kubectl into bin/, for machines without one
	@mkdir -p $(BIN)
	cd e2e && $(GO) build -o ../$(BIN)/kubectl -ldflags "-X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubectl | sed 's/^v0/v1/') -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=33" ./cmd/kubectl

.PHONY: cover
cover: ## Write the test coverage of the main module to cover.html
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -html=cover.out -o cover.html
	$(GO) tool cover -func=cover.out | tail -1

.PHONY: fmt
fmt: ## Format the code
	gofmt -w .

.PHONY: clean
clean: ## Remove binaries, and the data and certificates of make up
	rm -rf $(BIN) .local .local-ha cover.out cover.html
