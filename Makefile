# Everything installs what it needs into .venv: nothing to prepare but Python 3.11 or newer.
.PHONY: help up test test-all browser-test agents-test conformance check gate efficacy chaos compose-test fuzz lock format
PYTHON := .venv/bin/python
export PYTHONPATH := $(CURDIR)
# Tests start processes by the hundred: without its compiled form each takes half a second of CPU more to read the product.
unexport PYTHONDONTWRITEBYTECODE

# A misspelled variable would be ignored without a word. Each goal takes these; empty ones count as not given.
TAKES_up := PORT CONFIG DATA_DIR ARGS
TAKES_test := MINUTES SHARE ARGS
TAKES_test-all := MINUTES ARGS
TAKES_browser-test := ARGS
TAKES_agents-test := ARGS
TAKES_conformance := ARGS
TAKES_gate := ARGS
TAKES_compose-test := ARGS
TAKES_chaos := SECONDS CALLS SEED ARGS
TAKES_fuzz := SECONDS ARGS
TAKES_efficacy := CORPORA
TAKES_lock := UPGRADE
TAKES := $(foreach goal,$(or $(MAKECMDGOALS),up),$(TAKES_$(goal)))
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(filter-out $(TAKES) PYTHON SHELL,$(GIVEN))
$(if $(UNKNOWN),$(error `make $(or $(MAKECMDGOALS),up)` does not know $(UNKNOWN); it takes $(or $(sort $(TAKES)),no variables)))
# By the shell, from the environment, where make puts what its command line gives: any character may be in a path.
option = $(if $(and $(filter command,$(firstword $(origin $(1)))),$($(1))),$(2) "$$$(1)")

up:  ## start everything on embedded servers; PORT=18080 CONFIG=FILE DATA_DIR=DIR ARGS="--json"
	@scripts/setup local
	@exec $(PYTHON) -m sluice.cli up $(call option,PORT,--port) $(call option,CONFIG,--config) $(call option,DATA_DIR,--data-dir) $(ARGS)

help:  ## these lines
	@awk -F ':  ## ' '/^[a-z-]+:  ## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Files stay whole, because products are started once for each; in their order, so that the short ones come last and fill both cores.
pytest = SLUICE_TEST_MINUTES=$(1) SLUICE_TEST_SHARE=$(2) $(PYTHON) -m pytest --ignore tests/chaos --ignore tests/browser --ignore tests/agents -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test:  ## all tests, but of slow ones and of long tables a share, SHARE=0.03; ARGS="-k name" for all cases of some, ARGS="-n 0" for one after the other, MINUTES=60
	@scripts/setup dev
	@$(call pytest,$(or $(MINUTES),60),$(or $(SHARE),$(if $(filter -k% -m% tests/%,$(ARGS)),1,0.03)))

test-all:  ## every case, every slow test and every fault, for hours; the browser, agents and chaos have targets of their own
	@scripts/setup dev
	@$(call pytest,$(or $(MINUTES),600),1)

browser-test:  ## the pages in Chromium, which it installs where it can; ARGS="-k name", SLUICE_SCREENSHOTS=DIR for pictures
	@scripts/setup dev
	@scripts/browser
	@$(PYTHON) -m pytest tests/browser -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

agents-test:  ## coding agents through the product, in all dialects; SLUICE_AGENTS_DIR keeps what npm and pip install; ARGS="-k codex"
	@scripts/setup dev
	@$(PYTHON) -m pytest tests/agents -n 0 $(ARGS)

conformance:  ## every recording for clients of every dialect, through the running product and the official SDKs; ARGS="--only NAME --seed N"
	@scripts/setup dev
	@$(PYTHON) -m scripts.conformance $(ARGS)

check:  ## lint, format, types, imports, schema
	@scripts/setup dev
	@scripts/check

gate:  ## what a chunk takes, counted and beside a bare upstream, held against bench/gate/bounds.py; ARGS=--print for new bounds
	@scripts/setup local
	@$(PYTHON) -m bench.gate $(ARGS)

efficacy:  ## which module and table row of the readers of shell texts changes which decisions; CORPORA=DIR measures the presets anew and takes labelled commands from there
	@scripts/setup dev
	@$(if $(CORPORA),$(PYTHON) -m scripts.efficacy --measure $(call option,CORPORA,--corpora))
	@$(PYTHON) -m scripts.ablation $(call option,CORPORA,--corpora)

chaos:  ## processes, stores and networks broken under load; SECONDS=1800 CALLS=20000 SEED=7 for the random run
	@scripts/setup dev
	@SLUICE_CHAOS_SECONDS=$(SECONDS) SLUICE_CHAOS_CALLS=$(CALLS) SLUICE_CHAOS_SEED=$(SEED) $(PYTHON) -m pytest tests/chaos -q $(ARGS)

compose-test:  ## the image and compose.yaml, run for real
	@scripts/setup dev
	@tests/compose/run $(ARGS)

fuzz:  ## decoders, encoders, sessions and request codecs on damaged input; SECONDS=60 ARGS="--target NAME --seed N"
	@scripts/setup dev
	@scripts/fuzz --seconds $(or $(SECONDS),60) $(ARGS)

lock:  ## write requirements*.txt anew; UPGRADE=1 takes the newest versions
	@scripts/setup dev
	@scripts/lock

format:  ## order imports, format the code
	@scripts/setup dev
	@$(PYTHON) -m ruff check --fix-only --quiet . && $(PYTHON) -m ruff format --quiet .
