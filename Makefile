# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both make .venv first, from packages kept in ~/.cache/paternoster, so they work again offline.

BIN := .venv/bin
# Three at a time on two cores, each with one compute thread: some wait for processes while others compute. A file's
# tests stay together, for what they load once; files that take long come first (tests/conftest.py).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=25

# Rules of the code, its journeys, and its pure cores: what most changes break first.
QUICK := tests/house tests/journeys tests/contract tests/engine/core tests/gateway/admission tests/gateway/call \
	tests/gateway/routing tests/operator/autoscaling tests/operator/desired tests/operator/reconcile

# Bytecode is written, whatever the environment says: without it each process compiles torch's sources anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test test-quick vllm llama-cpp e2e cluster cluster-down images package lint chart-lint audit format generate \
	lock gpu-check gpu-compile bench soak hostile clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with the pinned packages
	@scripts/setup

demo: setup ## The main job, unattended: manifest, real engines, a burst, decisions, a report (about 5 minutes)
	$(BIN)/python scripts/demo

quick: lint ## Before each push: `make lint`, then the tests of pure code, three at a time; no root, no cluster
	$(PYTEST) -m "not slow and not other_engine" $(QUICK)

test: setup ## Every test that needs no cluster and no other engine, three at a time (minutes)
	$(PYTEST) -m "not other_engine"

test-quick: setup ## The tests that take seconds, three at a time
	$(PYTEST) -m "not slow and not other_engine"

vllm: setup ## The plugin in a real vLLM and fleets of it, set up first (9 GB, then about 20 minutes)
	REQUIRE_COMPONENTS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -m other_engine tests/operator/vllm_plugin tests/fleet/test_vllm.py \
		tests/fleet/test_vllm_streams.py

llama-cpp: setup ## A fleet of llama.cpp's server, which is compiled first (minutes of every core)
	REQUIRE_COMPONENTS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -m other_engine tests/fleet/test_llama_cpp.py

e2e: setup ## The suite on real Kubernetes, in a cluster of its own or on $KUBECONFIG's (minutes; first builds it)
	e2e/paternoster-e2e test $(E2E)

cluster: setup ## Start a one-node Kubernetes cluster on this machine; then: e2e/paternoster-e2e run kubectl get nodes
	e2e/paternoster-e2e up --detach

cluster-down: setup ## End it
	e2e/paternoster-e2e down

images: setup ## Build the images as OCI archives, without a registry
	e2e/paternoster-e2e components

lint: setup ## Formatting, lints, types, dependency directions, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check-words
	$(BIN)/paternoster crd --check crds
	$(BIN)/python scripts/chart --check
	$(BIN)/python scripts/dashboard --check
	$(BIN)/python scripts/doc-tables --check

package: setup ## The chart as an archive in dist/, for `helm push` or `helm install` (needs Go the first time)
	$(BIN)/python scripts/chart --check
	e2e/paternoster-e2e package

chart-lint: setup ## What Helm, kube-score and checkov say about the chart (needs Go the first time)
	e2e/paternoster-e2e lint-chart

audit: setup ## What is in the images (SBOMs in dist/sbom), and what is known to be wrong with it
	scripts/audit

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write the files made from code (the CRD, the chart's schema and README, the dashboard, tables of pages)
	$(BIN)/paternoster crd --write crds
	$(BIN)/python scripts/chart
	$(BIN)/python scripts/dashboard
	$(BIN)/python scripts/doc-tables

lock: setup ## Resolve constraints.txt anew from pyproject.toml
	scripts/lock

gpu-check: ## Check and measure kernels and engine on a CUDA machine with torch; needs no venv and no network
	$(or $(GPU_PYTHON),python3) benchmarks gpu.check

gpu-compile: setup ## Compile every Triton kernel for GPUs that are not here, and hold each to what it took (2 minutes)
	$(BIN)/python benchmarks gpu.compile --check

bench: setup ## What each scheduling idea gains, on a virtual clock (minutes)
	$(BIN)/python benchmarks scheduling.gains

soak: setup ## Mixed and hostile load on two real engines, with processes stopped and killed; SOAK_SECONDS=600
	$(BIN)/python benchmarks hostile.soak --seconds $(or $(SOAK_SECONDS),600) $(SOAK)

hostile: setup ## What a well-behaved client feels under each of its attacks, then fuzzers (about 10 minutes); FUZZ_SECONDS=3600
	$(BIN)/python benchmarks hostile.neighbours --seconds 4 $(HOSTILE)
	$(BIN)/python benchmarks hostile.fuzz --seconds $(or $(FUZZ_SECONDS),120)
	$(BIN)/python benchmarks hostile.attackers.fuzz_pods --seconds $(or $(FUZZ_SECONDS),120)
	$(BIN)/python benchmarks hostile.attackers.fuzz_gateway --seconds $(or $(FUZZ_SECONDS),120)

clean: ## Remove what was made in the checkout (the cache stays)
	rm -rf .venv demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
