# What a developer runs while working; `bash scripts/test` sets everything up first.
PYTHON = .venv/bin/python

.PHONY: check format test bench

check: .venv/xidwatch-ready   ## formatting, lint, types, import contracts, tests
	bash scripts/check

test: .venv/xidwatch-ready    ## the tests alone
	$(PYTHON) -m pytest -n auto

format: .venv/xidwatch-ready  ## rewrite the code the way check wants it
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

bench: .venv/xidwatch-ready   ## every measurement; takes half an hour and 5 GB of disk
	bash bench/run

.venv/xidwatch-ready: pyproject.toml
	bash scripts/setup
