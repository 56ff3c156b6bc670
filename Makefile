# Holdfast. `make demo` and `make test` are all that a newcomer needs; `make help` lists the rest.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOBUILD  = CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)"
BINARIES = bin/holdfast bin/holdfast-guard bin/greenhouse
# the tests that cut the power at every write, let every call fail and damage every region of each file
DISKS    = PowerCut|IOErrors|Corruption|BothFiles|LetThrough
ARCHS    = amd64 arm64 armhf
# TOOL=PACKAGE
SYSTEM   = mmdebstrap=mmdebstrap systemd-nspawn=systemd-container systemd-analyze=systemd nsenter=util-linux ip=iproute2 zstd=zstd lintian=lintian \
	shellcheck=shellcheck qemu-aarch64-static=qemu-user-static deb-systemd-helper=init-system-helpers
UNIT     = $$(go list ./... | grep -v /agent/scenario)

.PHONY: help build demo test quick check scenarios race deps test-long clean format vet lint unit story measure bench-git mutants fuzz fuzz-short soak man demo-record contract deb test-deb test-system session-record deps-system

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

build: ## the three binaries, static and stripped, in bin/
	@mkdir -p bin
	$(GOBUILD) -o bin/holdfast ./agent/cmd/holdfast
	$(GOBUILD) -o bin/holdfast-guard ./bootslot/cmd/holdfast-guard
	$(GOBUILD) -o bin/greenhouse ./device/cmd/greenhouse

man: build ## the manual pages, of the text that --help shows, in dist/man
	bin/holdfast man dist/man

demo: build ## a greenhouse, its guard, its agent and a git server on loopback; Ctrl-C ends it
	bin/greenhouse demo

test: ## all that this machine allows, without root
	@mkdir -p bin && rm -f bin/left-out
	@SUITE_LEFT_OUT=$(CURDIR)/bin/left-out $(MAKE) --no-print-directory unit scenarios story
	@if [ -s bin/left-out ]; then echo "Left out on this machine, with what enables it:"; cat bin/left-out; else echo "All of it ran; nothing was left out."; fi

unit:
	@go run ./tools/suite unit $(UNIT)

scenarios: ## the real binaries through bad commits, power cuts and lost links; RUN=name plays one and tells its story
ifdef RUN
	go test ./agent/scenario -count=1 -v -run 'TestScenarios/^$(RUN)$$'
else
	@go run ./tools/suite scenarios -count=1 -timeout 15m ./agent/scenario
endif

story: build ## the demo plays its story by itself and must come true
	bin/greenhouse demo --script

demo-record: build ## play the story, and write what it prints into the README
	bin/greenhouse demo --script >bin/story
	@awk 'NR==FNR {story = story $$0 "\n"; next} /This is all that it prints:$$/ {at = 1} at == 2 && /^```$$/ {at = 3} at != 2 {print} \
		at == 1 && /^```$$/ {printf "%s", story; at = 2}' bin/story README.md >bin/README.md && cp bin/README.md README.md && rm bin/story bin/README.md

quick: format vet unit ## before each commit

format:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not formatted (gofmt -w):"; echo "$$bad"; exit 1; }

vet:
	go vet ./...
	go vet -tags holdfast_testclock ./...
	go vet -tags deb,system ./packaging/...

lint:
	go tool -modfile=tools/tools.mod staticcheck ./...
	go tool -modfile=tools/tools.mod staticcheck -tags deb,system ./packaging/...

measure: ## the figures of the README, with the default intervals
	@go test ./agent/scenario -count=1 -timeout 15m -run "TestMeasure$$" -v -tags measure | grep "^|"

bench-git: ## the table of docs/performance.md: the clone against git and go-git; takes ten minutes
	@go test ./agent/gitclone -count=1 -timeout 60m -tags compare -run 'TestCompare$$' -v | grep -E '^\||FAIL|_test.go'

contract: ## does a device of yours keep the device contract? DEVICE=URL SHARE=folder TOKEN=file; moves each actuator to each of its values
	@CONTRACT_DEVICE="$(DEVICE)" CONTRACT_SHARE="$(SHARE)" CONTRACT_TOKEN="$(TOKEN)" go test ./device/cmd/greenhouse -count=1 -run 'TestContract$$' -v

mutants: ## each promise broken in a copy of the code, which the tests must notice; RUN="NAME…" breaks those only
	@go run ./tools/mutants $(RUN)

race: ## the unit tests under the race detector
	@go run ./tools/suite race -race $(UNIT)

soak: ## a month of random weather in minutes, after which nothing may have grown; SOAK_DAYS=30 SOAK_SEED=N
	@SOAK_DAYS=$(or $(SOAK_DAYS),30) SOAK_SEED=$(or $(SOAK_SEED),$(shell date +%s)) go test ./agent/scenario -count=1 -timeout 3h -run 'TestSoak$$' -v

FUZZTIME = 5m
fuzz: ## each fuzz target for FUZZTIME (5m); RUN=pattern of "PACKAGE TARGET" for some. What it finds is left under testdata/fuzz
	@go run ./tools/fuzz -keep fuzz $(FUZZTIME) "$(RUN)"

fuzz-short:
	@go run ./tools/fuzz fuzz-short 5s

check: format vet lint test mutants race fuzz-short ## all of it, before you stop

test-long: ## what is too long for every day: the scenarios under the race detector, the model explored deeper, failing disks looked at closer
	@HOLDFAST_SCENARIO_RACE=1 GORACE=atexit_sleep_ms=0 go run ./tools/suite scenarios-race -count=1 -timeout 20m ./agent/scenario
	@go run ./tools/suite model-long -count=1 -timeout 60m -run 'TestModel$$' ./bootslot ./agent -long
	@go run ./tools/suite clone-long -count=1 -timeout 30m ./agent/gitclone -long -skip '$(DISKS)'
	@go run ./tools/suite disks-long -count=1 -timeout 4h -run '$(DISKS)' ./device/boltfile ./bootslot/ledger ./bootslot/guard ./agent/gitclone/... -long

deb: ## the packages holdfast and holdfast-greenhouse for amd64, arm64 and armhf, in dist/; ARCHS=amd64 builds that only
	tools/deb/build dist $(ARCHS)

test-deb: deps-system deb ## the packages: the same bytes when built again, clean, running on each architecture, installed and removed
	@go run ./tools/suite packages -count=1 -timeout 30m -tags deb ./packaging

test-system: deps-system ## a board that is really booted, and installed, upgraded, cut off, broken and purged; RUN=pattern for some. As root, after make deb
	@go run ./tools/suite -times system -count=1 -timeout 14m -parallel 8 -tags system ./packaging/systemtest $(if $(RUN),-run '$(RUN)')

session-record: deps-system ## play the session of docs/session.md, and write there what it says. As root, after make deb
	@SESSION_RECORD=1 go run ./tools/suite -times session -count=1 -tags system -run TestSession ./packaging/systemtest

deps-system: # what the tests of the packages and of the booted system use; it installs what is missing
	@missing=; for tool in $(SYSTEM); do command -v $${tool%%=*} >/dev/null || missing="$$missing $${tool#*=}"; done; \
	[ -z "$$missing" ] || if [ $$(id -u) = 0 ]; then echo "installing what is missing:$$missing"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	else echo "missing, and only root may install it:$$missing"; exit 1; fi

deps: ## the Debian packages that the tests use (as root)
	apt-get update
	apt-get install -y --no-install-recommends git make gcc libc6-dev util-linux python3 fuse3 strace

clean:
	rm -rf bin dist
