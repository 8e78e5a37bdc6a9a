# What a contributor types. `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo dev core crate-tests test test-crate test-python test-fast lint-quick lint check lock audit wheels sdist bench profile fuzz fuzz-commands docs site clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
RUNNABLE := $(VENV)/.runnable
# every package of .venv, with its version and hashes: those that run and build the tool, and those of the checks
NEEDED := requirements/build.txt
LOCK := requirements/dev.txt
CORE := analyzer/core
# a change to one of these makes the core out of date; its tests are no part of it
SOURCES := pyproject.toml Cargo.toml Cargo.lock $(wildcard $(CORE)/Cargo.toml $(CORE)/p*/Cargo.toml) \
	$(shell find $(CORE)/src $(CORE)/p*/src -name '*.rs' -not -path '*/tests/*' -not -name 'tests.rs')
# how the core is compiled (Cargo.toml): `quick` for everything here but wheels and `make bench`, which have `release`
PROFILE ?= quick
# pyo3 and maturin find their Python by these
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# without bytecode every command of a test compiles what it imports: 0.45 s where it takes 0.1 s
unexport PYTHONDONTWRITEBYTECODE
# tools kept out of the Rust crates: the one Python file there writes test vectors
NOT_PRODUCT := $(CORE)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build what runs the tool, without Parquet, and analyze a recorded capture: about a minute
	@$(MAKE) --question $(BUILT) >/dev/null 2>&1 || $(MAKE) --no-print-directory $(RUNNABLE)
	$(BIN)/grpcdiag analyze fixtures/recorded/rtt205-go-16000.pcap

dev: $(BUILT) ## Create .venv with the whole tool, quickly compiled, and what the checks need

$(BIN)/python:
	@command -v cargo >/dev/null || { echo "cargo is not here: install Rust 1.88 or later (https://rustup.rs)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

LOCKED := --quiet --require-hashes --requirement
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile $(LOCKED)

$(VENV)/.needed: $(NEEDED) | $(BIN)/python
	@echo "installing the Python packages that run and build the tool"
	@$(PIP) $(NEEDED)
	@touch $@

# by uv, one of those: it takes a tenth of pip's time
$(VENV)/.installed: $(LOCK) $(VENV)/.needed
	@echo "installing the Python packages that the checks need: 1.4 GB"
	@$(BIN)/uv pip install --system-certs --python $(BIN)/python $(LOCKED) $(LOCK) || $(PIP) $(LOCK)
	@touch $@

# the core knows no Python: it is compiled while Python packages are installed, and its tests compile none of it again
core:
	@echo "compiling the core: about half a minute on two cores"
	@cargo build --locked --profile $(PROFILE) --package grpcdiag-core

# without an index nothing is resolved anew: what pyproject.toml asks for beyond the lock is an error (`make lock`)
DEVELOP = PIP_NO_INDEX=1 PIP_QUIET=1 $(BIN)/maturin develop --profile $(PROFILE)

$(RUNNABLE): $(SOURCES) $(NEEDED)
	@$(MAKE) --no-print-directory --jobs 2 core $(VENV)/.needed
	@echo "compiling its face towards Python, and installing both"
	@rm -f $(BUILT)
	@$(DEVELOP) --no-default-features
	@touch $@

$(BUILT): $(SOURCES) $(LOCK)
	@$(MAKE) --no-print-directory --jobs 2 core $(VENV)/.installed
	@echo "compiling what writes Parquet, and the core's face towards Python: about half a minute"
	@$(DEVELOP)
	@$(BIN)/python -m compileall -q -j 0 src analyzer capture fixtures fleet reports
	@touch $@ $(RUNNABLE)

# of the crates that have tests, and need no Python
CARGO_TEST := cargo test --locked --profile $(PROFILE) --package grpcdiag-core --package grpcdiag-parquet

# apart from `test`, so that something else can be done meanwhile
crate-tests: ## Compile the crates' tests
	$(CARGO_TEST) --quiet --no-run

# at once: what is compiled, and tests that wait, leave a core to the others
test: dev ## Run all tests; those that need tshark or tcpdump are skipped without them
	@$(MAKE) --no-print-directory --jobs 2 test-crate test-python

test-crate:
	$(CARGO_TEST) --quiet

# what tests import becomes bytecode once, which three workers would make at the same time, each all of it
$(VENV)/.imported: $(LOCK) | $(BUILT)
	@echo "compiling what the tests import"
	@$(BIN)/pytest --collect-only tests >/dev/null || true # the tests tell what is wrong
	@touch $@

test-python: dev $(VENV)/.imported
	PYTHONHASHSEED=0 $(BIN)/pytest -n 3 tests # three, for some wait; the same generated examples everywhere

# tests of browsers and of damaged and whole captures, which the loop of a developer does without (CONTRIBUTING.md)
SLOW := analyzer/test_damaged_recordings analyzer/test_disk_columns reports/test_filters reports/test_html_browser

test-fast: dev ## Run the core's unit tests and those of analysis and reports, below a minute
	$(CARGO_TEST) --lib
	GRPCDIAG_EXAMPLES=10 GRPCDIAG_CAPTURES=none PYTHONHASHSEED=0 $(BIN)/pytest -n 2 tests/analyzer tests/detectors tests/reports $(SLOW:%=--ignore tests/%.py)

lint-quick: $(VENV)/.installed ## Format, style, types, words: what needs nothing compiled, below 20 s
	$(BIN)/ruff format --check --extend-exclude $(NOT_PRODUCT) .
	$(BIN)/ruff check --extend-exclude $(NOT_PRODUCT) .
	cargo fmt --all --check
	$(BIN)/mypy --exclude '/core/'
	MYPYPATH=src:docs $(BIN)/mypy docs/generate.py docs/conf.py
	$(BIN)/zizmor --offline --quiet .github
	@if [ -n "$(ACTIONLINT)" ]; then $(ACTIONLINT); \
		else echo "workflows are not checked by actionlint: it is not here (CONTRIBUTING.md)" >&2; fi
	@if [ -n "$(VALE)" ]; then $(VALE) --output=line --glob='!**/{target,fuzz,vendor}/**' $(PROSE); \
		else echo "the language of pages is not checked: vale is not here (CONTRIBUTING.md)" >&2; fi

# as maturin calls cargo: with another environment pyo3 would be compiled again by each of the two
AS_MATURIN = PYO3_BUILD_EXTENSION_MODULE=1 PYTHON_SYS_EXECUTABLE=$(PYO3_PYTHON) PYO3_ENVIRONMENT_SIGNATURE=$\
	$(shell $(BIN)/python -c 'import sys; print("cpython-{}.{}-64bit".format(*sys.version_info))' 2>/dev/null) \
	PYO3_CONFIG_FILE=$(abspath $(wildcard target/maturin/pyo3-config-*.txt))

lint: dev lint-quick ## That, and the compiler's warnings, the core's typed face, generated pages, links
	$(AS_MATURIN) cargo clippy --workspace --all-targets --exclude stages --profile $(PROFILE) -- -D warnings
	$(AS_MATURIN) cargo clippy --package grpcdiag-python --no-default-features --profile $(PROFILE) -- -D warnings # as `make demo` builds it
	$(BIN)/python docs/generate.py --check
	$(SITE)
	$(BIN)/python -m mypy.stubtest grpcdiag.analyzer._core

# pages, docstrings and comments are held to the words of .vale/
PROSE := README.md CONTRIBUTING.md CHANGELOG.md docs analyzer capture fixtures fleet reports src/grpcdiag/cli src/grpcdiag/files tests/snapshots
GO_BIN := $(shell go env GOPATH 2>/dev/null)/bin
VALE := $(or $(shell command -v vale),$(wildcard $(GO_BIN)/vale))
ACTIONLINT := $(or $(shell command -v actionlint),$(wildcard $(GO_BIN)/actionlint))

# a link that leads nowhere is an error
SITE := $(BIN)/python -m sphinx --builder html --conf-dir docs --doctree-dir build/site-cache --fail-on-warning --keep-going --quiet . build/site

check: lint test ## Everything that must pass before a change goes in

lock: $(VENV)/.needed ## Write the locks of the Python packages anew, with the newest versions that pyproject.toml allows
	set -e; for extra in dev build audit release; do \
		case $$extra in build) same="--constraint $(LOCK)" ;; *) same= ;; esac; \
		$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
			--custom-compile-command "make lock" --extra $$extra $$same --output-file requirements/$$extra.txt pyproject.toml; \
	done

audit: ## Look for known flaws in the locked packages and crates, and for licences that are not allowed
	.ci/audit

# wheels and `make bench`: one unit of code for all crates, laid out by how often each way through it is taken (`make profile`).
# Cargo names symbols by the target, so the counts are those of this one; for others the compiler has none
LEARNT := $(CORE)/usual.profdata
COUNTED := x86_64-unknown-linux-gnu
BY_COUNTS = -Cprofile-use=$(CURDIR)/$(LEARNT) -Cllvm-args=-no-pgo-warn-mismatch

RELEASE := build/release
# builds of a developer name no commit: each would compile the core again
STAMPED = env -u VIRTUAL_ENV -u PYO3_PYTHON PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" \
	GRPCDIAG_COMMIT=$${GRPCDIAG_COMMIT:-$$(git describe --always --dirty --abbrev=12)} \
	GRPCDIAG_BUILT=$${GRPCDIAG_BUILT:-$$(date -u +%F)} \
	RUSTFLAGS="$(BY_COUNTS) --remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" # panics name no folders of this machine
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

# the core as wheels have it, in .venv; `make dev` links the quick one there again
RELEASED = PIP_NO_INDEX=1 PIP_QUIET=1 RUSTFLAGS="$1" $(BIN)/maturin develop --release --target $$(rustc --print host-tuple)

bench: dev ## Measure the core's stages, and speed and memory on large captures (or one KIND alone: unary, ..., growth)
	@echo "compiling the core as wheels have it: some minutes the first time"
	@rm -f $(BUILT) $(RUNNABLE)
	$(call RELEASED,$(BY_COUNTS))
	[ -n "$(KIND)" ] || RUSTFLAGS="$(BY_COUNTS)" cargo run --release --target $$(rustc --print host-tuple) --package stages -- --bench
	$(BIN)/python -m grpcdiag.fixtures.bench $(KIND)

COUNTS := $(CURDIR)/build/profile/counts
PROFDATA = $$(rustc --print sysroot)/lib/rustlib/$$(rustc --print host-tuple)/bin/llvm-profdata

profile: dev ## Count anew what the core does most, by which the compiler lays it out (needs rustup's llvm-tools)
	@test -x "$(PROFDATA)" || { echo "missing: rustup component add llvm-tools" >&2; exit 1; }
	@[ "$$(rustc --print host-tuple)" = $(COUNTED) ] || { echo "the counts are those of $(COUNTED)" >&2; exit 1; }
	rm -rf $(COUNTS) $(BUILT) $(RUNNABLE)
	$(call RELEASED,-Cprofile-generate=$(COUNTS)) --target-dir build/profile
	$(BIN)/python -m grpcdiag.fixtures.bench.train
	$(PROFDATA) merge --sparse --write-prev-version --output $(LEARNT) $(COUNTS)

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
