# Everything a fresh machine with Python 3.11, pip and make needs is set up by these targets.
PYTHON ?= python3
BIN := .venv/bin
# One more than there are cores: many tests wait for a browser or another process.
WORKERS = $$(( $$(getconf _NPROCESSORS_ONLN) + 1 ))
LONGEST := tests/test_docs.py tests/test_lectures.py
RARE := /tests?/|/testing/|/pip/|transformers/(models|quantizers|pipelines)/|/_inductor/|babel/locale
# Threads that wait must not spin: on two busy cores everything else would stand still.
export OMP_WAIT_POLICY := passive

.PHONY: setup demo test docs pictures studio quick slow fuzz format clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[plots,fast,mt,chem,series,studio,dev]'
	# pip would compile every module on one core; most are never imported
	$(BIN)/python -m compileall -q -j 0 -x '$(RARE)' .venv/lib
	touch $@

demo: setup
	$(BIN)/regard demo

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/pytest $(LONGEST) tests -n $(WORKERS) --dist loadfile --durations=10 -rs; tests=$$?; \
	wait $$types && exit $$tests

docs: .venv/.docs
	$(BIN)/python scripts/build_reference.py --check
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/site
	@echo build/site/index.html

.venv/.docs: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# Trains eight small models, eight minutes in all; runs that are in build/pictures are used again.
pictures: setup
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(BIN)/playwright install chromium
	$(BIN)/python scripts/build_pictures.py
	$(BIN)/python scripts/build_reference.py

# Checks the types of the studio's JavaScript, and that the vendored files are the published ones.
studio: setup
	npm --prefix scripts/studio ci --silent
	npm --prefix scripts/studio run --silent check
	$(BIN)/python scripts/vendor_studio.py --check

quick: setup
	$(BIN)/pytest -m 'not browser and not slow' -x tests/layers tests/models tests/tokenizers tests/data tests/decoding

slow: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow
	$(BIN)/python benchmarks/kill.py --kills 20

fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/long.py --cases 20000 --minutes 15

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
