# Two commands are all a newcomer needs: `make demo` and `make test`. `make help` lists the rest.
#
# Every path is relative, so that a directory with a space in its name is as good as any.

PYTHON ?= python3
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
EXTRAS := dev,docs,sketches,rocksdb,objects,kafka,mqtt,delta,chart,bench

.DEFAULT_GOAL := help
.PHONY: help demo test test-rest test-all test-again install lint docs bench lock clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      run the demo: a fleet of sensors, kills in the middle, exact totals at the end"
	@echo "make test      run the first tier of the tests: all that protects behaviour, in about 14 minutes"
	@echo "make test-rest run the second tier: more kinds, more kills, more clusters, the demo"
	@echo "make test-all  run both"
	@echo "make test-again run what failed last once more, one test after the other"
	@echo "make install   only make the environment, .venv, with .venv/bin/ferryman in it"
	@echo "make lint      check style, format and types"
	@echo "make docs      build the pages of docs/ as a site, into site/"
	@echo "make bench     measure rows per second, and the time of an epoch, against Spark's own"
	@echo "make lock      choose the newest versions of all dependencies anew, into requirements.lock"
	@echo "make clean     remove the environment and what builds and tests left; what runs left in out/ stays"
	@echo
	@echo "PYTHON=python3.12 picks another Python; ARGS='...' goes to demo, test (pytest) or bench."

demo: install
	@$(VENV)/bin/ferryman demo $(ARGS)

# Two processes, with a Spark each; tests that watch the whole machine go one after the other in one of them.
# Who names tests gets those, whatever tier they are of.
PYTEST := $(PY) -m pytest --numprocesses 2 --no-loadscope-reorder

test: install
	@$(PYTEST) $(if $(ARGS),$(ARGS),-m "not slow")

test-rest: install
	@$(PYTEST) -m slow

test-all: install
	@$(PYTEST)

# What failed last, by itself.
test-again: install
	@$(PY) -m pytest --last-failed --last-failed-no-failures none

# A Java can go away after the environment was made, so that part is looked at every time.
install: $(STAMP)
	@$(PY) -I src/ferryman/_os/java.py > $(VENV)/.java || { \
		echo "No Java 17 or later on this machine: bringing one into $(VENV) (about 35 MB)"; \
		$(PIP) install -c requirements.lock -e ".[$(EXTRAS),java]" && \
		$(PY) -I src/ferryman/_os/java.py > $(VENV)/.java; }

$(STAMP): pyproject.toml requirements.lock
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "Ferryman needs Python 3.10 or later. Is there another one here? make PYTHON=python3.12 ..."; \
		exit 1; }
	@test -x $(PY) || "$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { \
		echo "This Python cannot make virtual environments. On Debian and Ubuntu:"; \
		echo "    sudo apt install python3-venv"; \
		exit 1; }
	@echo "Making the environment in $(VENV) (once; it downloads about 600 MB, Spark most of it)"
	@test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	@echo "Installing Ferryman and what it needs"
	@# The pip that comes with an older Python builds PySpark in a way it then complains about.
	@$(PIP) install --upgrade pip
	@$(PIP) install -c requirements.lock -e ".[$(EXTRAS)]"
	@echo "Compiling Ferryman's inner loops"
	@$(PY) -c "from ferryman._spark.session.warm_workers import warm; warm()"
	@touch $@
	@echo "Ready: $(VENV)/bin/ferryman"

lint: install
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

# Nothing is fetched, neither now nor when the pages are looked at.
docs: install
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "The site is in site/; to look at it: $(PY) -m http.server --directory site"

bench: install
	@$(VENV)/bin/ferryman bench throughput $(ARGS)
	@$(VENV)/bin/ferryman bench epoch $(ARGS)

# One lock for all Pythons and systems that we support, with no trace of where it was made.
lock:
	@test -x $(VENV)/lock/bin/python || "$(PYTHON)" -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip --quiet --disable-pip-version-check install uv
	@$(VENV)/lock/bin/python -m uv --quiet --no-config pip compile --upgrade --universal --python-version 3.10 \
		--all-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock pyproject.toml
	@echo "requirements.lock is new; make test installs from it"

clean:
	@rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
