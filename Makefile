# Two commands: `make eval` and `make test`. Both build .venv first, once.
PYTHON ?= python3
# What pip installs as torch; a GPU user names another build, e.g. TORCH="torch --index-url https://..."
TORCH ?= torch -c constraints.txt
# The cache may hold an empty data folder, where a download failed.
CACHED = $(patsubst %/downstream,%,$(wildcard $(HOME)/.cache/stsbench/data/downstream))
DATA ?= $(firstword $(wildcard $(STSBENCH_DATA) ../shared/data) $(CACHED))
# Everything quick; `make eval PROTOCOL=all` adds the transfer tasks, hundreds of fits each.
PROTOCOL ?= sts,regression,retrieval,geometry,mteb
STAMP = .venv/.stsbench-ready

.PHONY: env eval test lint gpu board web web-test web-check clean build/types

env: $(STAMP)

# Torch goes first and alone: whatever depends on it then keeps the build that was chosen.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("stsbench needs Python 3.11 or later: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

eval: env
	.venv/bin/stsbench eval --model minilm --protocol $(PROTOCOL) $(if $(DATA),--data-dir $(DATA),--sample)

# A process a core, each with one thread: two of either would fight over the cores.
test: env
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile

lint: env build/types
	.venv/bin/ruff check .
	.venv/bin/mypy

# What a CUDA machine makes of it, in one report: build/gpu. `make gpu ARGS=--cpu` is the dry run.
gpu: env
	.venv/bin/python benchmarks/gpu $(if $(DATA),--data-dir $(DATA)) $(ARGS)

# The checkout in the shape of an installed stsbench, made of links: mypy knows no setuptools' package-dir.
build/types:
	rm -rf $@
	mkdir -p $@/stsbench
	ln -s $(CURDIR)/stsbench/* $(CURDIR)/protocols $(CURDIR)/methods $(CURDIR)/leaderboard $@/stsbench

# Is the board valid? The page is made from its records into build/board.
board: env
	.venv/bin/stsbench leaderboard build --output build/board

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
