# What contributors do, most often first; CONTRIBUTING.md says more.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

help:
	@sed -n 's/^\([a-z]*\): ## /  make \1\t/p' Makefile | expand -t 16

setup: ## Install the Debian packages, and the Python packages into .venv.
	$(SUDO) bash vagrant/provision.sh

fast: ## Run the tests of the pure rooms, which need no root.
	.venv/bin/pytest -n auto tests/topologies tests/controller tests/traffic

test: ## Run all tests, as CI does: unit tests, emulation, linters.
	$(SUDO) .venv/bin/pytest -n auto

lint: ## Run ruff, mypy, codespell, shellcheck and the house rules.
	.venv/bin/pytest --no-cov -q tests/test_style.py

docs: ## Build the documentation's site, with warnings as errors.
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict && echo "open results/site/index.html; with its search: .venv/bin/mkdocs serve"

bench: ## Measure what lightrail promises on this machine.
	$(SUDO) .venv/bin/python scenarios/bench.py

clean: ## Remove caches and the site; results and .venv stay.
	rm -rf .*_cache .hypothesis .coverage* results/site $$(find [!.]* -name __pycache__ -prune)

.PHONY: help setup fast test lint docs bench clean
