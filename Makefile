# "make" alone lists what there is to make: every line below that has two hashes.

GO          ?= go
GOLANGCI    := .bin/golangci-lint
GOLANGCI_V  := v2.15.0
# One package at a time would be slow, and all at once starts too many servers.
PARALLEL    ?= 2
TIMEOUT     ?= 20m
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -X main.version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List what there is to make
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build-deps build ## See it work: a stale leader, with and without the fence (installs what is missing)
	bin/fenceproxy demo

.PHONY: test
test: deps lint kubeapi ## Everything that must pass: linter and all tests with the race detector (installs what is missing)
	$(GO) test -race -p $(PARALLEL) -timeout $(TIMEOUT) ./...
	FENCEPROXY_LOOPS=off $(GO) test -race -p $(PARALLEL) -timeout $(TIMEOUT) $(WIRES)

# Sessions are carried by loops or by goroutines (docs/driver.md). Linux has both.
WIRES := ./protocols/pg ./protocols/resp ./integration/pgdiff ./integration/respdiff
.PHONY: test-goroutines
test-goroutines: deps kubeapi ## All tests of the wires and the integration tests without loops, as on systems that have none
	FENCEPROXY_LOOPS=off $(GO) test -race -p $(PARALLEL) -timeout $(TIMEOUT) ./protocols/... ./integration/...

.PHONY: deps
deps: ## Install what building and testing need and this machine lacks (apt, and npm for Postgres versions; elsewhere it says what)
	@.ci/deps

.PHONY: build-deps
build-deps:
	@.ci/deps demo

# The first time this takes minutes, and says so; then nothing.
.PHONY: kubeapi
kubeapi: ## Build the Kubernetes API server of the tests into the user's cache, once a machine (8 minutes of processor time or more)
	@$(GO) run ./internal/testenv/buildkube

.PHONY: build
build: ## Build bin/fenceproxy
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/fenceproxy ./cmd/fenceproxy

.PHONY: test-fast
test-fast: ## All tests once, without the race detector, the linter and the set-up
	$(GO) test -p $(PARALLEL) -timeout $(TIMEOUT) ./...

.PHONY: race-long
race-long: deps kubeapi ## The long takeover races: hundreds of takeovers on each wire, 1,000 on each election backend (an hour or so)
	FENCEPROXY_LONG=1 $(GO) test -race -p 1 -timeout 90m -count 1 -v ./integration/...
	FENCEPROXY_LONG=1 $(GO) test -race -p 1 -timeout 90m -count 1 -v -run '^TestTakeovers$$' ./election/...

.PHONY: mutants
mutants: deps ## Take each safety step out, one at a time, and see its test fail (minutes)
	$(GO) run ./internal/mutants

# Each fuzz function of each package gets FUZZTIME.
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME each (default 30s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -parallel $(PARALLEL) $$pkg; \
		done; \
	done

# On a machine that does nothing else, please. BENCH_FLAGS are for each command of bench:
# --rounds, --slice, --wire and --only; "fenceproxy bench --help" has the rest.
BENCH_FLAGS ?=
KUBE := internal/testenv/kubeapi
.PHONY: bench
bench: bench-deps build kubeapi ## Measure fenceproxy beside direct, takeovers and elections, into bench-NAME-DATE (an hour)
	bin/fenceproxy bench own $(BENCH_FLAGS)
	bin/fenceproxy bench fence $(BENCH_FLAGS)
	bin/fenceproxy bench elections --backend memory,redis,valkey,postgres,zookeeper,kubernetes --kube $(KUBE) $(BENCH_FLAGS)

.PHONY: bench-peers
bench-peers: bench-deps build ## The same beside PgBouncer, HAProxy and twemproxy, into bench-peers-DATE (an hour)
	bin/fenceproxy bench peers $(BENCH_FLAGS)

.PHONY: bench-check
bench-check: bench-deps build ## Measure a little, and compare its ratios with the last report in bench/reports (minutes)
	bin/fenceproxy bench check $(BENCH_FLAGS)

.PHONY: bench-deps
bench-deps:
	@.ci/deps bench

.PHONY: lint
lint: $(GOLANGCI)-$(GOLANGCI_V) ## Run the linter: style, mistakes and the direction of imports
	$< run --allow-parallel-runners ./...

$(GOLANGCI)-$(GOLANGCI_V):
	@echo "Building golangci-lint $(GOLANGCI_V), once: this takes a few minutes."
	GOBIN=$(CURDIR)/.bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_V)
	mv $(GOLANGCI) $@

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w $$(git ls-files '*.go')

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .bin
