# All targets run in .venv, which `make install` creates with the interpreter PYTHON.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install demo lint types test test-long test-browser gpu-test browser bench clean

help:
	@echo "make demo      set up .venv and stylize the embedded pictures"
	@echo "make test      set up .venv, lint, check types, run the tests"
	@echo "make test-long     run the longest tests (several processes, Ray)"
	@echo "make test-browser  test the web app, and the page of make browser, in Chromium; needs chromium and pip install playwright in .venv"
	@echo "make bench     run the benchmarks on this machine and update the records and README tables"
	@echo "make gpu-test  run the tests that need a CUDA device, in the current environment"
	@echo "make browser   write build/browser/stylize.html, a page that stylizes pictures in the browser (needs npm)"

$(VENV)/installed: pyproject.toml constraints.txt requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch torchvision
	$(BIN)/pip install --quiet -c constraints.txt -e ".[all]" -r requirements-dev.txt
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/efdm demo -o demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

test: lint types
	$(BIN)/pytest -m "not gpu and not browser and not long" -n auto --dist loadfile

test-long: install
	$(BIN)/pytest -m "long and not gpu"

test-browser: install
	$(BIN)/pytest -m browser tests/apps/web tests/browser

gpu-test:
	PYTHONPATH=src $(PYTHON) benchmarks/gpu_tests.py

ORT_WEB := build/browser/node_modules/onnxruntime-web

$(ORT_WEB):
	npm install --silent --prefix build/browser onnxruntime-web@1.30.0

browser: install $(ORT_WEB)
	$(BIN)/python docs/browser/make.py build/browser/stylize.html

bench: install
	$(BIN)/python benchmarks/match.py
	$(BIN)/python benchmarks/pictures.py
	$(BIN)/python benchmarks/flicker.py
	$(BIN)/python benchmarks/colours.py
	$(BIN)/python benchmarks/dg.py
	$(BIN)/python benchmarks/match_report.py --readme
	$(BIN)/python benchmarks/pictures_report.py --readme
	$(BIN)/python benchmarks/lab_report.py --readme
	$(BIN)/python benchmarks/reproduction.py --readme
	$(BIN)/python benchmarks/style_report.py --readme

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache demo
