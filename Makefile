# `make` lists the targets. Everything lives in $(VENV), which several clones may share:
# the package is therefore never installed in it, but found by PYTHONPATH.
VENV ?= .venv
PYTHON ?= python3
BAZEL ?= bazel-4
HUNT ?= 20
PYTHONS ?= 3.10 3.11 3.12 3.13

# Compilers run in parallel under ninja and Bazel; the steps here are a sequence.
.NOTPARALLEL:

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup compilers packages-build packages-lint packages-test packages-wheels build demo docs check test hunt stress bench \
  golden support losses wheels wheels-test clean lint lint-cpp lint-python lint-shell format

override VENV := $(abspath $(VENV))
BIN := $(VENV)/bin
# Debian's ccache stands in for the compilers there, if it is installed.
COMPILERS := /usr/lib/ccache
RUN := PYTHONPATH=$(CURDIR)/python $(BIN)/python
# Of each set of requirements that is installed there is a file in $(VENV): see tools/setup_venv.sh.
VERSION := $(shell cat pyproject.toml tools/setup_venv.sh | sha256sum | cut -c1-16)
FOR_RUN := $(VENV)/.torch_xla_cc.run.$(VERSION)
FOR_LINT := $(VENV)/.torch_xla_cc.lint.$(VERSION)
FOR_TEST := $(VENV)/.torch_xla_cc.test.$(VERSION)
FOR_DOCS := $(VENV)/.torch_xla_cc.docs.$(VERSION)
FOR_WHEELS := $(VENV)/.torch_xla_cc.wheels.$(VERSION)
FOR_COMPILERS := $(VENV)/.torch_xla_cc.compilers.$(VERSION)
# An environment of this clone has the command. A shared one cannot know which clone is meant.
ifeq ($(VENV),$(CURDIR)/.venv)
TXCC := .venv/bin/txcc
else
TXCC := PYTHONPATH=python $(BIN)/python -m txcc
endif

CPP := $(shell find lowering torch_xla_cc pod python tests -name '*.cc' -o -name '*.h')
SHELL_SCRIPTS := .ci/run tools/wheels/c++ $(wildcard tools/*.sh tools/gpu/*.sh tools/wheels/*.sh examples/cluster/*.sh \
  examples/cluster/*.sbatch)

# Before the first set-up there is no Python to ask for the suffix, and no extension either.
EXTENSION := python/torch_xla_cc/_C$(shell $(BIN)/python -c \
  'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))' 2>/dev/null)
EXTENSION_SOURCES := setup.py $(shell find lowering torch_xla_cc pod -name '*.cc' -o -name '*.h' \
  -o -name '*.def' -o -name '*.inc' -o -name '*.map')

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16
	@echo "Variables: VENV=$(VENV) PYTHON=$(PYTHON) BAZEL=$(BAZEL) PYTHONS='$(PYTHONS)'"

setup: packages-build packages-lint packages-test ## Install what is missing for all of these
	@tools/setup_venv.sh $(VENV) $(VERSION) $(PYTHON) lint test docs compilers
	@echo "Ready: $(VENV)"

compilers: $(FOR_COMPILERS) ## Install the compilers of TPU and GPU, for txcc inspect --target

packages-build packages-lint packages-test packages-wheels: packages-%:
	@tools/debian_packages.sh $(PYTHON) $*

$(VENV)/.torch_xla_cc.%.$(VERSION): | packages-build
	@tools/setup_venv.sh $(VENV) $(VERSION) $(PYTHON) $*

build: $(EXTENSION) $(filter .venv/bin/txcc,$(TXCC)) ## Set up, and compile the extension and the plugin in place

$(EXTENSION): $(EXTENSION_SOURCES) | $(FOR_RUN)
	@mkdir -p build && touch build/started
	@CPPFLAGS=-Werror CCACHE_BASEDIR=$(CURDIR) CCACHE_NOHASHDIR=1 \
	  PATH="$(COMPILERS):$(BIN):$$PATH" $(BIN)/python tools/compile_extension.py
	@# What was edited since is not in it.
	@touch -cr build/started $@

.venv/bin/txcc: tools/link_clone.py pyproject.toml | $(FOR_RUN)
	@$(BIN)/python tools/link_clone.py

demo: build ## Set up what it needs, build, and run the demo
	@PJRT_DEVICE=$${PJRT_DEVICE:-CPU} $(RUN) examples/demo.py
	@printf '\n%s\n  %s\n' "What has the compiler made of its collectives? Next:" \
	  "$(TXCC) inspect examples/demo.py -- --steps=1"

# The pages are in build/site, and need no server: open build/site/index.html.
docs: $(FOR_DOCS) ## Build the documentation as a site: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: lint packages-test $(FOR_TEST) build ## Lint, and the tests that take a few minutes: for every save
	$(BAZEL) test //...
	$(RUN) $(PYTEST) -q -m quick

test: packages-test $(FOR_TEST) build ## Set up, build, and run the tests of C++ and of Python: for every commit
	$(BAZEL) test //...
	$(RUN) $(PYTEST) --durations 15

hunt: $(FOR_TEST) build ## Look for faults at random, for hours: HUNT=20 times as much as the tests do
	TORCH_XLA_CC_HUNT=$(HUNT) TORCH_XLA_CC_SEED=$$(date +%s) $(RUN) $(PYTEST) -m hunt --timeout 0

stress: $(FOR_TEST) build ## Run the tests of threads and processes 20 times, with other work on the machine
	$(RUN) tools/stress.py

lint: lint-cpp lint-python lint-shell ## Check formatting, style and types; change nothing

lint-cpp: $(FOR_LINT)
	$(BIN)/clang-format --dry-run --Werror $(CPP)

lint-python: $(FOR_LINT)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint-shell: packages-lint
	shellcheck $(SHELL_SCRIPTS)

format: $(FOR_LINT) ## Format C++ and Python
	$(BIN)/clang-format -i $(CPP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(FOR_TEST) build ## Run the benchmarks
	$(RUN) benchmarks/run.py

# Tests write the golden files instead of comparing, outside Bazel's sandbox, into this tree.
golden: packages-test ## Rewrite tests/golden from what the lowerings emit now
	$(BAZEL) test --strategy=TestRunner=local --nocache_test_results \
	  --test_env=UPDATE_GOLDEN=1 --test_env=BUILD_WORKSPACE_DIRECTORY=$(CURDIR) //tests/lowering:all

support: $(FOR_TEST) build ## Rewrite docs/support.md from what calls of torch.distributed become now
	UPDATE_SUPPORT=1 $(RUN) -m pytest -q tests/distributed/test_support.py

losses: $(FOR_TEST) build ## Rewrite tests/clients/losses.json: what clients lose on gloo
	UPDATE_LOSSES=1 $(RUN) -m pytest -q tests/clients

# Compiled by one compiler, against an old glibc, with the headers of each Python: tools/wheels/build.py.
# The roots of other Debians and Ubuntus that have them are made, and used, as root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY,PIP_INDEX_URL,PIP_CACHE_DIR,UBUNTU_MIRROR,DEBIAN_MIRROR)
NOT_SUDO = $(if $(SUDO_UID),$(error Run make $@ without sudo: it asks for root where it has to, and what it builds is yours))
BUILT = $(strip $(foreach version,$(PYTHONS),$(if $(wildcard dist/*-cp$(subst .,,$(version))-*.whl),$(version))))

wheels: packages-wheels $(FOR_WHEELS) ## Build in dist/ the sdist, and a wheel for each of PYTHONS (asks for root)
	$(NOT_SUDO)tools/wheels/sysroot.sh build/wheels/sysroot
	for version in $(PYTHONS); do $(AS_ROOT) tools/wheels/root.sh build/wheels/roots/$$version $$version; done
	PATH="$(BIN):$$PATH" $(BIN)/python tools/wheels/build.py $(PYTHONS)
	$(BIN)/python -m build --sdist --no-isolation
	$(BIN)/twine check --strict dist/*

wheels-test: ## Install each wheel that is there in a fresh Debian or Ubuntu, and use it (asks for root)
	$(NOT_SUDO)$(if $(BUILT),,$(error dist/ has no wheel for any of PYTHONS='$(PYTHONS)': make wheels))
	for version in $(BUILT); do $(AS_ROOT) tools/wheels/test.sh build/wheels/roots/$$version $$version \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; done

clean: ## Remove what was built (not $(VENV))
	if [[ -e build/wheels/roots ]]; then $(AS_ROOT) rm -rf build/wheels/roots; fi
	rm -rf build dist python/*.egg-info python/torch_xla_cc/_C*.so python/torch_xla_cc/libpod.so
