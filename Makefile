# Everything runs in a virtual environment of its own, from pinned and hashed dependencies: no root, no Docker, no cluster.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# tests/engine runs in a process of its own: importing the engine imports Locust, which patches the process, and gevent
# then reaps children that other tests wait for.

.DEFAULT_GOAL := help
.PHONY: help demo test check format lock clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ingress-swarm needs Python 3.11 or newer, $(PYTHON) is %d.%d: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "setting up $(VENV) (about a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/run.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	@touch $@

demo: $(VENV)/.run  ## load four gateways and a baseline while their backends come and go; ends with a report
	@$(BIN)/ingress-swarm demo

check: $(VENV)/.dev  ## format, lint, types, import rules, quick tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not integration" --ignore=tests/engine
	$(BIN)/python -m pytest tests/engine

test: check  ## all tests, real gateways and workers included
	@mkdir -p .cache
	@echo "the lab's tests run beside the others; theirs are shown at the end"
	@$(BIN)/python -m pytest -m integration tests/lab tests/targets tests/analysis > .cache/lab-tests.log 2>&1 & \
	lab=$$!; \
	$(BIN)/python -m pytest -m integration --ignore=tests/engine --ignore=tests/lab --ignore=tests/targets --ignore=tests/analysis; \
	others=$$?; wait $$lab; lab=$$?; cat .cache/lab-tests.log; test $$others -eq 0 -a $$lab -eq 0

format: $(VENV)/.dev  ## format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra lab pyproject.toml -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra lab --extra dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt

clean:  ## remove the virtual environment and caches, never a run
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .cache
