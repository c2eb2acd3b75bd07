# The verbs of this project. Each is a few plain commands; what does not fit a line stands in scripts/ and tests/setup.
# `make run` needs Debian and the Rust toolchain; it installs cmake and a C compiler where they are missing.

# Builds go where they survive a fresh clone, if there is such a place (.ci/run makes it).
cache := $(HOME)/.cache/portcullis/target
export CARGO_TARGET_DIR ?= $(if $(wildcard $(cache)),$(cache),$(CURDIR)/target)
portcullis := $(CARGO_TARGET_DIR)/debug/portcullis

.PHONY: help run build test lint bench bench-approvals bench-audit bench-sandbox bench-ssh dashboards soak demo verify verify-cgroup2

help: ## This list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

run: build ## The gateway of gateway.yaml on http://127.0.0.1:8080, with a person and the sandbox to try it on
	@scripts/need bwrap
	@scripts/run "$(portcullis)"

build: ## A debug build of the one program
	@scripts/need cmake cc
	cargo build --locked

test: ## Every test; installs the SDKs that some of them talk with
	@scripts/test

lint: ## Format, clippy, and (where cargo-deny is installed) licences and sources of dependencies
	cargo fmt --all --check
	@scripts/need cmake cc
	cargo clippy --workspace --locked --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check bans licenses sources; \
	else echo "make lint: cargo-deny is not installed, so deny.toml was not looked at"; fi

# Short: make bench ROUNDS=1 SECONDS=0.5. One part: make bench ONLY="1 KiB" (its title has this in it) or ONLY=idle.
ROUNDS ?= 3
SECONDS ?= 3
STREAMS ?= 9000
bench: ## What a call costs beside nginx and a bare proxy: tables in docs/performance.md; ROUNDS=1 SECONDS=0.5 is a short one
	@scripts/need cmake cc
	@scripts/need taskset nginx valgrind || echo "make bench: goes on without what is missing, and says so in its tables" >&2
	cargo build --locked --release
	cd bench && cargo build --locked --release --workspace
	"$(CARGO_TARGET_DIR)/release/bench" --gateway "$(CARGO_TARGET_DIR)/release/portcullis" --rounds $(ROUNDS) \
		--seconds $(SECONDS) --streams $(STREAMS) --only "$(ONLY)" --keep "$(KEEP)" --http2 "$(HTTP2)" \
		--write "$(if $(ONLY),,docs/performance.md)"

# The gateway that is compared here can be told to record nothing. It is built beside all others, so that nobody runs it.
measured := $(CARGO_TARGET_DIR)/measure
bench-audit: ## What the audit log costs a call, with it and without, and how many records a second it takes; docs/performance.md
	@scripts/need cmake cc
	@scripts/need taskset valgrind || echo "make bench-audit: goes on without what is missing, and says so in its table" >&2
	cargo build --locked --release --features measure --target-dir "$(measured)"
	cd bench && cargo build --locked --release --workspace
	PORTCULLIS_TEST_CEILING="$(measured)/ceilings.json" cargo test --locked --release --features measure --target-dir "$(measured)" \
		--test all -- --exact audit::ceiling::what_many_callers_wait_for_and_leave_behind_is_all_taken
	"$(CARGO_TARGET_DIR)/release/bench" --gateway "$(measured)/release/portcullis" --audit "$(measured)/ceilings.json" \
		--rounds $(ROUNDS) --seconds $(SECONDS) --keep "$(KEEP)" --write docs/performance.md

bench-approvals: ## What the approvals page costs with 1,000 held calls: at most 100 ms, in a release build
	@scripts/need cmake cc
	cargo test --locked --release --test all -- --exact --nocapture approval::speed::the_list_of_a_thousand_calls_is_there_at_once

bench-ssh: ## What an action on a host takes beside `ssh` itself; in a release build, on an idle machine
	@scripts/need cmake cc bwrap
	cargo test --locked --release --test all -- --exact --nocapture \
		ssh::speed::an_action_takes_no_longer_than_by_openssh_over_a_master_and_half_as_long_as_by_a_cold_one

verify: build ## Attacks on the sandbox from inside, on bubblewrap and gVisor, and on hosts of the SSH upstream, each with a control
	@scripts/need bwrap
	@scripts/verify "$(portcullis)"
	@scripts/verify-ssh "$(portcullis)"

verify-cgroup2: build ## The same on cgroup v2 alone: a kernel of Debian's, emulated; with a gateway that is root and one that is not
	@scripts/need bwrap busybox cpio qemu-system-x86_64 strip
	@scripts/verify-cgroup2 "$(portcullis)"

bench-sandbox: ## What confinement adds to the start of a command, beside plain fork and exec; on an idle machine, as root
	@scripts/need bwrap
	cargo build --locked --release --package portcullis-sandbox --bin confined
	@scripts/bench-sandbox "$(CARGO_TARGET_DIR)/release/confined"

# Short: make dashboards MINUTES=1.
MINUTES ?= 4
dashboards: ## Minutes of traffic under a real Prometheus: every panel has data, alerts fire, and docs/images/dashboard-*.png
	@scripts/need cmake cc
	@MINUTES=$(MINUTES) scripts/dashboards

demo: build ## A held call, from webhook to result: an agent, a browser, two people; nothing to press
	@scripts/need bwrap
	@scripts/demo "$(portcullis)"

# Short: make soak KILLS=2 CALLERS=200 AUDIT_KILLS=20.
KILLS ?= 25
CALLERS ?= 1000
AUDIT_KILLS ?= 1000
soak: ## The gateway killed at each step of a held call and a thousand times under load, and a thousand callers at one approval
	@scripts/need cmake cc
	@KILLS=$(KILLS) CALLERS=$(CALLERS) AUDIT_KILLS=$(AUDIT_KILLS) scripts/soak
