# Everything is kept in .venv/ and build/. Another interpreter: make test PYTHON=python3.13
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
  $$python -c "import sys; sys.exit(sys.version_info < (3, 11))" 2> /dev/null && echo $$python && break; done),python3)
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
READY := $(VENV)/.ready
VLLM := $(BUILD)/vllm

# What tools would otherwise leave in the source tree.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(BUILD)/pycache
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/$(BUILD)/hypothesis
export CARGO_TARGET_DIR := $(CURDIR)/$(BUILD)/native
PRODUCT := $(shell find dspark_json -name '*.py' -o -name '*.json')
NATIVE := $(shell find native -name '*.rs' -o -name 'Cargo.*')
# The JVM connector. Its Maven has a repository of its own: Spark takes ~/.m2 for complete where it looks for packages.
JAVA_SOURCES := $(shell find jvm-bridge -type f)
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
JAR := dspark_json/jars/dspark-json-spark-$(VERSION).jar
MAVEN := mvn --quiet --batch-mode --file jvm-bridge/pom.xml -Dmaven.repo.local=$(CURDIR)/$(BUILD)/m2 -Dstyle.color=never
SECONDS ?= 60
# Another release of Spark, in an environment of its own; this checkout's Python, native module and jar run on it.
RELEASE ?=
SPARK := $(BUILD)/spark-$(RELEASE)
SPARK_NEEDS := httpx orjson pyarrow hypothesis pytest pytest-timeout uvicorn
# PySpark 4.0 leaves the socket of each collect() to the garbage collector.
SPARK_WARNINGS := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
SPARK_TESTS := $(patsubst %,tests/integration/test_spark_%.py,jvm pruning stream typed profiles connect python)
BATCHES ?= 10000

SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.DEFAULT_GOAL := help
.PHONY: help demo test test-spark test-vllm lint format bench soak fuzz jar test-gpu gpu-bundle docs notebooks clean java maven rust
.DELETE_ON_ERROR:

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java $(JAR) $(READY) ## Show the whole path: requests, records, rows in a Delta table (Java 17)
	@$(BIN)/dspark-json demo

test: java $(JAR) $(READY) ## Run all tests (Java 17, Maven)
	@cargo test --quiet --locked --manifest-path native/Cargo.toml -p dspark-json-core
	@$(MAVEN) test
	@$(BIN)/pytest

test-spark: java $(JAR) $(READY) $(SPARK)/.ready ## Run the tests of Spark on another RELEASE of it: RELEASE=4.1.4 (Java 17)
	@PYTHONPATH=$(CURDIR) $(SPARK)/bin/python -m pytest $(SPARK_WARNINGS) $(SPARK_TESTS)

test-vllm: java $(JAR) $(READY) $(VLLM)/.ready ## Run the tests on a real vLLM (CPU; the first time 6 GB to fetch)
	@$(BIN)/pytest tests/real_vllm

lint: $(READY) ## Check style, types and the links of the site
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(SITE)
	@cargo fmt --all --check --manifest-path native/Cargo.toml
	@cargo clippy --quiet --locked --manifest-path native/Cargo.toml --all-targets -- -D warnings

format: $(READY) ## Put the code into its format
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

bench: java $(JAR) $(READY) ## Measure what the hook costs, how fast answers are parsed, and how fast Spark has them
	@$(BIN)/dspark-json bench capture
	@$(BIN)/dspark-json bench parse
	@$(BIN)/dspark-json bench spark

soak: java $(JAR) $(READY) ## Every answer once, for SECONDS (60) of kills; a ring's race, as long; then leaks: BATCHES (10000) micro-batches, 100,000 answers
	@PYTHONPATH=tests $(BIN)/python -m soak.run --seconds $(SECONDS)
	@DSPARK_RACE_SECONDS=$(SECONDS) $(BIN)/pytest --timeout=0 -q -s tests/unit/device/test_race.py
	@PYTHONPATH=tests $(BIN)/python -m soak.micro_batches --batches $(BATCHES)
	@$(BIN)/dspark-json bench capture --memory 100000

fuzz: $(READY) ## Compare both engines on random records for SECONDS (60)
	@DSPARK_FUZZ_SECONDS=$(SECONDS) $(BIN)/pytest --timeout=0 -s tests/unit/engine/test_native_fuzz.py

test-gpu: ## Check and measure the GPU path, on a machine with a GPU
	@if [ -x $(BIN)/python ]; then python=$(BIN)/python; else python="$(PYTHON)"; fi; "$$python" tests/gpu/run.py

gpu-bundle: $(READY) ## Pack what test-gpu needs on a machine without a network
	@$(BIN)/python scripts/gpu_bundle.py $(BUILD)/gpu-bundle.tar.xz

docs: $(READY) ## Write the pages of docs/ that are made from tables, and the site (build/site/)
	@$(BIN)/python scripts/make_docs.py
	@$(SITE)

notebooks: java $(JAR) $(READY) ## Execute the notebooks and keep their outputs (Java 17)
	@$(BIN)/python scripts/make_notebooks.py

# vLLM itself is kept in ~/.cache/dspark-json, by its pins; see the script.
$(VLLM)/.ready: $(READY) $(PRODUCT) scripts/make_vllm_environment.py scripts/make_tiny_models.py $(wildcard tests/real_vllm/requirements*.txt)
	@echo "Installing this checkout beside vLLM into $(VLLM) …"
	@$(BIN)/python scripts/make_vllm_environment.py $(VLLM)
	@touch $(VLLM)/.ready

$(SPARK)/.ready: $(READY)
	@test -n "$(RELEASE)" || { echo "make: say which Spark: make test-spark RELEASE=4.1.4" >&2; exit 1; }
	@echo "Installing Spark $(RELEASE) into $(SPARK) …"
	@test -x $(SPARK)/bin/python || $(BIN)/python -m venv $(SPARK)
	@$(SPARK)/bin/python -m pip install --quiet --disable-pip-version-check "pyspark[connect]==$(RELEASE)" $(SPARK_NEEDS) > $(SPARK).log 2>&1 || { \
	  echo "make: Spark $(RELEASE) could not be installed: $$(grep -m 1 -i '^ *error' $(SPARK).log); see $(SPARK).log" >&2; exit 1; }
	@touch $@

jar: $(JAR) ## Build the JVM connector, into dspark_json/jars/ (Java 17, Maven)

clean: ## Remove .venv/, build/ and the connector's jar
	@rm -rf $(VENV) $(BUILD) dspark_json/jars

java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	found=$$("$$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	if [ -z "$$found" ]; then \
	  echo "make: Java is missing: install a JDK 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; \
	elif [ "$$found" -lt 17 ]; then \
	  echo "make: $$java is Java $$found, 17 or newer is needed: install a JDK 17 or set JAVA_HOME" >&2; exit 1; \
	fi

maven: java
	@mvn --version > /dev/null 2>&1 || { echo "make: Maven is missing (Debian, Ubuntu: apt install maven)" >&2; exit 1; }
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}javac" -version > /dev/null 2>&1 || { \
	  echo "make: javac is missing: install a JDK 17 (Debian, Ubuntu: apt install openjdk-17-jdk-headless) or set JAVA_HOME" >&2; exit 1; }

rust:
	@cargo --version > /dev/null 2>&1 || { echo "make: Rust is missing: install the stable toolchain (rustup.rs)" >&2; exit 1; }

$(JAR): $(JAVA_SOURCES) pyproject.toml | maven
	@echo "Building $(JAR) (the first time this takes a minute) …"
	@mkdir -p $(BUILD)
	@$(MAVEN) package -DskipTests > $(BUILD)/jar.log 2>&1 || { \
	  echo "make: the connector could not be built: $$(grep -m 1 'ERROR' $(BUILD)/jar.log); see $(BUILD)/jar.log" >&2; exit 1; }
	@rm -rf $(@D) && mkdir -p $(@D) && cp $(BUILD)/jvm/$(@F) $@

$(READY): pyproject.toml $(NATIVE) | rust
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: Python 3.11 or newer is needed, $(PYTHON) is $$("$(PYTHON)" -V 2>&1 | head -n 1): say make PYTHON=python3.12 or the like" >&2; exit 1; }
	@mkdir -p $(BUILD)
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) > $(BUILD)/venv.log 2>&1 || { rm -rf $(VENV); \
	  echo "make: $(PYTHON) can't make a virtual environment (Debian, Ubuntu: apt install python3-venv); see $(BUILD)/venv.log" >&2; exit 1; }
	@echo "Installing into $(VENV) (the first time this takes some minutes) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' > $(BUILD)/pip.log 2>&1 || { \
	  echo "make: the packages could not be installed (no network, or no Rust?): $$(grep -m 1 -i '^ *error' $(BUILD)/pip.log); see $(BUILD)/pip.log" >&2; exit 1; }
	@touch $(READY)
