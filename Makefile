# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Both make .venv first, from packages kept in ~/.cache/paternoster, so they work again offline.

BIN := .venv/bin
PACKAGES := operator engine kernels gateway

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick lint format generate lock gpu-check bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with the pinned packages
	@scripts/setup

demo: setup ## The main job, unattended: manifest, real engines, a burst, decisions, a report (about 5 minutes)
	$(BIN)/python scripts/demo.py

test: setup ## Every test that needs no cluster
	$(BIN)/pytest

test-quick: setup ## The tests that take seconds
	$(BIN)/pytest -m "not slow"

lint: setup ## Formatting, lints, types, dependency directions, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/paternoster crd --check crds

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write the files made from code (the CRD)
	$(BIN)/paternoster crd --write crds

lock: setup ## Resolve constraints.txt anew from pyproject.toml
	scripts/lock

gpu-check: ## Check the GPU path on a CUDA machine with torch; needs no venv and no network
	$(or $(GPU_PYTHON),python3) scripts/gpu_check.py

bench: setup ## Continuous against static batching on this machine
	$(BIN)/python benchmarks/static_vs_continuous.py

clean: ## Remove what was made in the checkout (the cache stays)
	rm -rf .venv demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
