# Stoker's commands. `make up` and `make test` are all that a newcomer needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PEERS  ?= two
FUZZ_SECONDS ?= 600

.PHONY: up test unit check fix bench fuzz test-all docs venv dev clean help

help:             ## show the commands
	@grep -E '^[a-z-]+: .*##|^[a-z-]+: *##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(BIN)/stoker: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Stoker needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: apt-get install python3-venv"; exit 1; }
	@echo 'installing Stoker into $(VENV) (the first time: about a minute)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sdk]'
	@touch $(BIN)/stoker

$(VENV)/.dev: pyproject.toml $(BIN)/stoker
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sdk,dev]'
	@touch $(VENV)/.dev

venv: $(BIN)/stoker
dev: $(VENV)/.dev

up: $(BIN)/stoker ## set up and run: controller, gateway, engine and a real model
	@exec $(BIN)/stoker up $(ARGS)

test: $(VENV)/.dev ## everything that CI runs besides check: unit, then real processes
	$(BIN)/python -m pytest -q -n auto -m "not e2e and not optin"
	$(BIN)/python -m pytest -q -m "e2e and not optin"
	$(BIN)/python fuzz/run.py --seconds 60

unit: $(VENV)/.dev ## what needs no process
	$(BIN)/python -m pytest -q -n auto -m "not e2e and not optin"

check: $(VENV)/.dev ## ruff, format, mypy, import contracts, deptry, codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry src
	$(BIN)/codespell src docs tests README.md CONTRIBUTING.md CHANGELOG.md AGENTS.md

fix: $(VENV)/.dev ## what a machine can mend, it mends
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## ratios against two peers; all of them with PEERS=all
	$(BIN)/python bench/machine.py
	$(BIN)/python bench/run.py --peers $(PEERS)
	$(BIN)/python bench/rehearsal.py
	$(BIN)/python bench/clients.py --peers $(PEERS)
	-$(BIN)/stoker bench selfcheck

fuzz: $(VENV)/.dev ## fuzz the parsers for FUZZ_SECONDS (600), and keep what is found
	$(BIN)/python fuzz/run.py --seconds $(FUZZ_SECONDS) --keep

docs: $(VENV)/.dev ## write the reference pages from the code
	$(BIN)/python docs/generate.py

test-all: $(VENV)/.dev ## make test and the opt-in jobs (large downloads, real time)
	$(BIN)/python -m pytest -q

clean:            ## remove what make made
	rm -rf $(VENV) build dist src/*.egg-info
