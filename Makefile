# Every target works on a bare Debian 12 with Go and Node. `make help` lists them.

export GOFLAGS = -tags=nomsgpack -buildvcs=false
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -X main.version=$(VERSION)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build and start the control plane with the embedded store on 127.0.0.1:8080
	./bin/controlplane serve

.PHONY: demo
demo: build ## a retry storm, and the same without the storm: two minutes, with the dashboard on 127.0.0.1:8080
	go build -o bin/ ./cmd/demo
	./bin/demo

.PHONY: build
build: ## build bin/controlplane and bin/agent
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/controlplane ./cmd/agent

.PHONY: test
test: deps vet web-check ## install what the tests need, then run every test with the race detector
	go test -race -timeout 15m -skip '^TestDashboard$$' ./...
	$(MAKE) browser
	cd bench && go vet ./... && go test -run '^$$' -bench . -benchtime 1x ./...

.PHONY: browser
browser: deps ## the dashboard in a real browser; alone, because it measures
	go test -timeout 5m -run '^TestDashboard$$' ./web

.PHONY: vet
vet: ## gofmt and go vet
	@bad=$$(gofmt -l cmd internal pkg web/*.go bench); test -z "$$bad" || { echo "gofmt: $$bad"; exit 1; }
	go vet ./...

.PHONY: deps
deps: ## install redis-server and chromium if they are missing
	@command -v redis-server >/dev/null || ./tools/install redis-server
	@command -v chromium >/dev/null || ./tools/install chromium

NODE_MODULES = web/node_modules/.package-lock.json

$(NODE_MODULES): web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

.PHONY: web
web: $(NODE_MODULES) ## build the dashboard into web/dist, which is committed
	cd web && npm run --silent check && npm run --silent build

.PHONY: web-check
web-check: $(NODE_MODULES) ## check the dashboard's types, run its tests, and hold web/dist against a fresh build
	cd web && npm run --silent check && npm test --silent && npx vite build --logLevel warn --outDir node_modules/.fresh
	@diff -r web/dist web/node_modules/.fresh || { echo "web/dist is not what web/src builds: run make web and commit"; exit 1; }

.PHONY: storm
storm: ## the published retry storm, with its figures
	go test -run TestStorm -v -count 1 ./internal/storm/

.PHONY: bench-client
bench-client: ## the guarded call beside gobreaker and failsafe-go, as ratios
	./tools/bench-client

.PHONY: bench-redis
bench-redis: deps ## what syncs cost Redis
	go test -run '^$$' -bench . ./internal/sharedbreaker ./internal/sharedbudget

.PHONY: fuzz
fuzz: ## every fuzz target for 60 s
	./tools/fuzz 60s

.PHONY: lint
lint: ## golangci-lint with the import walls; its first run builds it
	go tool -modfile=tools/go.mod golangci-lint run --build-tags nomsgpack ./...
