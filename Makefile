# What a contributor types. `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help dev demo crate-tests test test-crate test-python test-fast lint check lock audit wheels sdist bench profile fuzz fuzz-commands docs site clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
INSTALLED := $(VENV)/.installed
# every package of .venv, with its version and hashes
LOCK := requirements/dev.txt
# a change to one of these makes the core out of date; its tests are no part of it
SOURCES := pyproject.toml Cargo.toml Cargo.lock analyzer/core/Cargo.toml \
	analyzer/core/rustc.args analyzer/core/usual.profdata \
	$(shell find analyzer/core/src -name '*.rs' -not -path '*/tests/*' -not -name 'tests.rs')
# pyo3 and maturin find their Python by these
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# without bytecode every command of a test compiles what it imports: 0.45 s where it takes 0.1 s
unexport PYTHONDONTWRITEBYTECODE
# tools kept out of the Rust crate: the one Python file there writes test vectors
NOT_PRODUCT := analyzer/core

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: $(BUILT) ## Create .venv with the tool, the core built in release mode, and what the checks need

LOCKED := --quiet --require-hashes --requirement $(LOCK)
# where uv is: it installs in a tenth of the time
BY_UV := $(if $(shell command -v uv),uv pip install --system-certs --python $(BIN)/python $(LOCKED) ||)

$(INSTALLED): $(LOCK)
	@command -v cargo >/dev/null || { echo "cargo is not here: install Rust 1.88 or later (https://rustup.rs)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.11" >&2; exit 1; }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BY_UV) $(BIN)/python -m pip install --disable-pip-version-check --no-compile $(LOCKED)
	-$(BIN)/python -m compileall -q -j 0 $(VENV)/lib # a file that is none of this Python is left out
	@touch $@

# how the core is compiled; `.ci/run` has `checks` for it and for its tests (Cargo.toml). They link Python: in one folder,
# each would have the other compiled again
export PROFILE ?= release
WHERE := $(if $(filter checks,$(PROFILE)),--profile checks --target-dir target/tests)
CARGO_TEST := cargo test $(WHERE)

# without an index nothing is resolved anew: what pyproject.toml asks for beyond the lock is an error (`make lock`)
$(BUILT): $(SOURCES) $(INSTALLED)
	PIP_NO_INDEX=1 $(BIN)/maturin develop --profile $(PROFILE)
	$(BIN)/python -m compileall -q -j 0 src analyzer capture fixtures fleet reports
	@touch $@

demo: dev ## Analyse a recorded capture
	$(BIN)/grpcdiag analyze fixtures/recorded/rtt205-go-16000.pcap

# apart from `test`, so that something else can be done meanwhile
crate-tests: $(INSTALLED) ## Compile the crate's tests
	$(CARGO_TEST) --quiet --no-run

test: test-crate test-python ## Run all tests; those that need tshark or tcpdump are skipped without them

test-crate: dev
	$(CARGO_TEST)

test-python: dev
	PYTHONHASHSEED=0 $(BIN)/pytest -n 4 tests # four, for some wait; the same generated examples everywhere

# tests of browsers and of damaged and whole captures, which the loop of a developer does without (CONTRIBUTING.md)
SLOW := analyzer/test_damaged_recordings analyzer/test_disk_columns reports/test_filters reports/test_html_browser

test-fast: dev ## Run the core's unit tests and those of analysis and reports, below a minute
	$(CARGO_TEST) --lib
	GRPCDIAG_EXAMPLES=10 GRPCDIAG_CAPTURES=none PYTHONHASHSEED=0 $(BIN)/pytest -n 2 tests/analyzer tests/detectors tests/reports $(SLOW:%=--ignore tests/%.py)

lint: dev ## Format, style, types, the core's typed face, generated pages, links
	$(BIN)/ruff format --check --extend-exclude $(NOT_PRODUCT) .
	$(BIN)/ruff check --extend-exclude $(NOT_PRODUCT) .
	$(BIN)/mypy --exclude '/core/'
	MYPYPATH=src:docs $(BIN)/mypy docs/generate.py docs/conf.py
	cargo fmt --check
	cargo clippy --all-targets $(WHERE) -- -D warnings
	$(BIN)/python docs/generate.py --check
	$(SITE)
	$(BIN)/python -m mypy.stubtest grpcdiag.analyzer._core
	$(BIN)/zizmor --offline --quiet .github
	@if [ -n "$(ACTIONLINT)" ]; then $(ACTIONLINT); \
		else echo "workflows are not checked by actionlint: it is not here (CONTRIBUTING.md)" >&2; fi
	@if [ -n "$(VALE)" ]; then $(VALE) --output=line --glob='!**/{target,fuzz,vendor}/**' $(PROSE); \
		else echo "the language of pages is not checked: vale is not here (CONTRIBUTING.md)" >&2; fi

# pages, docstrings and comments are held to the words of .vale/
PROSE := README.md CONTRIBUTING.md docs analyzer capture fixtures fleet reports src/grpcdiag/cli src/grpcdiag/files tests/snapshots
GO_BIN := $(shell go env GOPATH 2>/dev/null)/bin
VALE := $(or $(shell command -v vale),$(wildcard $(GO_BIN)/vale))
ACTIONLINT := $(or $(shell command -v actionlint),$(wildcard $(GO_BIN)/actionlint))

# a link that leads nowhere is an error
SITE := $(BIN)/python -m sphinx --builder html --conf-dir docs --doctree-dir build/site-cache --fail-on-warning --keep-going --quiet . build/site

check: lint test ## Everything that must pass before a change goes in

lock: ## Write the lock of the Python packages anew, with the newest versions that pyproject.toml allows (needs uv)
	@command -v uv >/dev/null || { echo "uv is not here: pip install uv" >&2; exit 1; }
	for extra in dev audit release; do \
		uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
			--custom-compile-command "make lock" --extra $$extra --output-file requirements/$$extra.txt pyproject.toml || exit 1; \
	done

audit: ## Look for known flaws in the locked packages and crates, and for licences that are not allowed
	.ci/audit

RELEASE := build/release
# builds of a developer name no commit: each would compile the core again
STAMPED = env -u VIRTUAL_ENV -u PYO3_PYTHON PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" \
	GRPCDIAG_COMMIT=$${GRPCDIAG_COMMIT:-$$(git describe --always --dirty --abbrev=12)} \
	GRPCDIAG_BUILT=$${GRPCDIAG_BUILT:-$$(date -u +%F)} \
	RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" # panics name no folders of this machine
# zig links Linux wheels against the oldest C libraries that Rust supports, so that they run on every distribution
TARGETS ?= $(addsuffix -unknown-linux-gnu,x86_64 aarch64) $(addsuffix -unknown-linux-musl,x86_64 aarch64)

wheels: $(RELEASE)/.installed ## Build the wheels of TARGETS into dist: manylinux and musllinux, x86_64 and aarch64
	rustup target add $(TARGETS)
	set -e; for target in $(TARGETS); do \
		case $$target in *-gnu) libc="manylinux2014 --zig" ;; *-musl) libc="musllinux_1_2 --zig" ;; *) libc= ;; esac; \
		$(STAMPED) maturin build --release --compatibility pypi $$libc --target $$target --out dist; \
	done

sdist: $(RELEASE)/.installed ## Build the source distribution into dist
	$(STAMPED) maturin sdist --out dist

$(RELEASE)/.installed: requirements/release.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

bench: dev ## Measure the core's stages, and speed and memory on large captures (or one KIND alone: unary, ..., growth)
	@[ -n "$(KIND)" ] || cargo run --release --package stages -- --bench
	$(BIN)/python -m grpcdiag.fixtures.bench $(KIND)

LEARNT := analyzer/core/usual.profdata
COUNTS := $(CURDIR)/build/profile/counts
PROFDATA = $$(rustc --print sysroot)/lib/rustlib/$$(rustc --print host-tuple)/bin/llvm-profdata

# the arguments lie in a file because cargo names symbols by what it is called with, and counts are kept by symbol
profile: dev ## Count anew what the core does most, by which the compiler lays it out (needs rustup's llvm-tools)
	@test -x "$(PROFDATA)" || { echo "missing: rustup component add llvm-tools" >&2; exit 1; }
	rm -rf $(COUNTS)
	echo -Cprofile-generate=$(COUNTS) > analyzer/core/rustc.args
	trap 'git checkout --quiet analyzer/core/rustc.args' EXIT; \
		$(BIN)/maturin develop --release --target-dir build/profile && $(BIN)/python -m grpcdiag.fixtures.bench.train
	$(PROFDATA) merge --sparse --write-prev-version --output $(LEARNT) $(COUNTS)
	PIP_NO_INDEX=1 $(BIN)/maturin develop --release
	@touch $(BUILT)

# of each target; -s none: the core has no unsafe code for a sanitizer to look at, and memory is measured as it is
RUNS ?= 10000000
MAX_LEN ?= 2048
# seconds of one input by the clock: a machine that lets processes wait longer needs more
TIMEOUT ?= 1
FUZZ := analyzer/core/fuzz
FUZZ_TARGETS ?= packets http2 tls capture_file pipeline scrub
LIBFUZZER := -runs=$(RUNS) -max_len=$(MAX_LEN) -dict=$(FUZZ)/dictionary.txt -rss_limit_mb=256 -timeout=$(TIMEOUT) -print_final_stats=1

fuzz: dev ## Search for input that breaks the core (RUNS of each of FUZZ_TARGETS; needs cargo-fuzz and a nightly toolchain)
	@cargo +nightly fuzz --version >/dev/null || { echo "missing: rustup toolchain install nightly; cargo install cargo-fuzz --locked" >&2; exit 1; }
	cargo run --quiet --manifest-path $(FUZZ)/Cargo.toml --example seeds -- $(FUZZ)/seeds
	set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ)/corpus/$$target; \
		cargo +nightly fuzz run -s none --no-trace-compares --fuzz-dir $(FUZZ) $$target \
			$(FUZZ)/corpus/$$target $(FUZZ)/seeds/$$target $$(ls -d $(FUZZ)/regressions/$$target 2>/dev/null) -- $(LIBFUZZER); \
	done

MINUTES ?= 60
SEED ?= 1

fuzz-commands: dev ## Run every command on captures changed at random, for MINUTES, from SEED on
	$(BIN)/python -m grpcdiag.fixtures.bench.fuzz --minutes $(MINUTES) --first $(SEED)

docs: dev ## Write the generated pages and the outputs in pages anew, and build the site into build/site
	$(BIN)/python docs/generate.py
	$(SITE)
	@echo "open build/site/index.html"

site: dev ## Build the site alone; GRPCDIAG_PUBLISHED=1 links to the pages of other versions
	$(SITE)

clean: ## Remove everything that was built
	cargo clean
	rm -rf $(VENV) build bench-data dist .mypy_cache .ruff_cache .pytest_cache .hypothesis analyzer/*.so
	find analyzer capture reports fixtures src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
