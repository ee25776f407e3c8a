# make book    set up everything and build the site into _build/html
# make test    run every test (set-up and build included)
# make check   rules, types and formulas: lint, the tests of the library, its doctests; two minutes on two cores
# make doubt   sweep, oracle, mutants, reproducible and bench, one after the other; hours
# make sweep   what make test looks at by a few pages that stand for the others, looked at on every page
# make page P=book/workloads/3-1-1.ipynb   one page alone, in seconds, below _build/page (RUN=yes runs and stores the notebook first)
# make lint    rules and types of all code, no more than seconds
# make limits  the library's measures beside their limits
# make serve   the site on localhost
# make book PYODIDE=folder   the site also serves NumPy, SciPy and Matplotlib to its live notebooks, from the unpacked distribution of Pyodide
# make pdf     the whole book as one PDF in _build/pdf, printed by Chromium (CHROMIUM=program names one)
# make notebooks   run every notebook again and store its outputs
# make audit   collect the checks of the executed pages into _build/audit.json
# make oracle  the counts of PyTorch and the parameters of published configurations anew, compared with the library (installs torch in .venv-oracle)
# make assignment EXERCISES="3-02 3-04"   starters to hand out (in _grading/release; COURSE= and ASSIGNMENT= choose another place and name;
#              VARIANT=word: other numbers; VARIANT=file of names: others for each; HINTS=no: `answer` tells nothing)
# make grade SUBMISSIONS=folder           marks and feedback for what was handed in, one folder a student (COLLECT=yes: only read the marks by hand)
# make class-site                         the site with starters instead of solutions, in _build/class/_build/html
# make bench   speed against SimPy, single steps, single calls, PyTorch's counter and a published fit, in _build/bench.json
#              (RECORD=yes: also the run that the book shows)
# make mutants seeded faults that some test must find (SAMPLE= SEED= EACH=20 MODULES= MINUTES=60)
# make reproducible   two builds compared, unit tests in random orders, other Pythons, other processors
#              (RUNS=20 PARTS="orders pythons builds processors"): an hour and a half
# make links   which addresses outside the site answer; needs a network
# make CONSTRAINTS= test   the same with the newest packages that requirements.txt allows (in a copy of its own, or after make clean)
# make clean   remove all that these commands made
PYTHON ?= python3
PORT   ?= 8000
VENV   := .venv
CONSTRAINTS ?= constraints.txt
PINNED := $(CONSTRAINTS:%=-c %)
BIN    := $(VENV)/bin
GRADING := .venv-grading
SITE   := book/_site
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYDEVD_DISABLE_FILE_VALIDATION := 1
# hundreds of kernels import the library: what Python compiled once it shall find again
unexport PYTHONDONTWRITEBYTECODE
.PHONY: book page limits check test sweep doubt lint pdf notebooks audit links serve oracle bench mutants reproducible assignment grade class-site clean
.DELETE_ON_ERROR:

# The limits are those of a fresh clone on two cores; over them there is a warning.
book: $(VENV)/.ok $(SITE)/node_modules/.ok _build/.install
	@$(BIN)/python $(SITE)/build.py
	@echo "The book: _build/html/book/index.html (open it as a file, or 'make serve' and see localhost:$(PORT))"
	@$(BIN)/python $(SITE)/clock.py $$PPID "make book" --wall 250

page: $(VENV)/.ok
	@$(BIN)/python $(SITE)/page.py $(if $(RUN),--run) $(P)

# formulas and rules: the tests that open neither the site nor a browser and start no other program
check: lint
	$(BIN)/pytest -q -n 2 --dist loadfile --doctest-modules lib/workloads lib/workloads_book $$(grep -LwE 'SITE|subprocess|browser|nbval' tests/test_*.py)
	@$(BIN)/python $(SITE)/clock.py $$PPID "make check" --cpu 240

test: lint book $(GRADING)/.ok
	$(BIN)/pytest -q -rfEs -n 2 --dist loadfile --doctest-modules --nbval --nbval-current-env lib/workloads lib/workloads_book tests book exercises
	@$(BIN)/python $(SITE)/clock.py $$PPID "make test" --cpu 900

doubt:
	@for question in sweep oracle mutants reproducible bench; do echo "== make $$question"; $(MAKE) --no-print-directory $$question || exit 1; done

sweep: book $(GRADING)/.ok
	SWEEP=yes $(BIN)/pytest -q -rfEs -n 2 --dist loadfile $$(grep -lw SWEEP tests/test_*.py)

lint: $(VENV)/.ok
	@$(BIN)/ruff check --quiet --output-format concise
	@$(BIN)/pyrefly check --config .pyrefly.toml --output-format min-text --summary=none

notebooks: $(VENV)/.ok
	$(BIN)/python $(SITE)/notebooks.py

limits: $(VENV)/.ok
	@$(BIN)/python tests/limits.py

audit: $(VENV)/.ok
	$(BIN)/python $(SITE)/audit.py

pdf:
	@$(PYTHON) $(SITE)/chromium.py
	@$(MAKE) --no-print-directory book
	$(BIN)/python $(SITE)/pdf.py

links: book
	@$(BIN)/python -c "import urllib.request as r; r.urlopen('https://example.org', timeout=10)" 2> /dev/null || \
	  { echo "No network: other sites cannot be asked. (Links within the book are checked by make test.)"; exit 1; }
	@mkdir -p _build/links/_build && ln -sfn ../../.jupyter_cache _build/links/_build/.jupyter_cache
	@jupyter-book build . --builder linkcheck --path-output _build/links --quiet > _build/links.log 2>&1; test -s _build/links/_build/html/output.txt
	@grep -E ": \[(broken|timeout)" _build/links/_build/html/output.txt || echo "Every address answers."
	@echo "All addresses with their answers: _build/links/_build/html/output.txt"

serve: book
	@echo "Serving on localhost:$(PORT); stop with Ctrl-C"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

ORACLE := .venv-oracle
COUNTS := lib/workloads/facts/data/torch_counts.tsv
CONFIG_COUNTS := lib/workloads_book/data/config_counts.tsv
KIND_COUNTS := lib/workloads_book/data/torch_kinds.tsv

oracle: $(VENV)/.ok $(ORACLE)/.ok
	@mkdir -p _build
	PYTHONPATH=lib $(ORACLE)/bin/python tests/torch_oracle.py > _build/torch_counts.tsv
	@cmp -s _build/torch_counts.tsv $(COUNTS) || { cp _build/torch_counts.tsv $(COUNTS); echo "The recorded counts changed: see git diff $(COUNTS)"; }
	$(ORACLE)/bin/python tests/torch_kinds.py > _build/torch_kinds.tsv
	@cmp -s _build/torch_kinds.tsv $(KIND_COUNTS) || { cp _build/torch_kinds.tsv $(KIND_COUNTS); echo "The recorded counts of kinds changed: see git diff $(KIND_COUNTS)"; }
	@test ! -d ../shared/data/configs && echo "Parameters of published configurations: no configurations at ../shared/data/configs, the recorded ones stay" || \
	  { $(ORACLE)/bin/python tests/config_oracle.py > _build/config_counts.tsv && { cmp -s _build/config_counts.tsv $(CONFIG_COUNTS) || \
	  { cp _build/config_counts.tsv $(CONFIG_COUNTS); echo "The recorded parameters changed: see git diff $(CONFIG_COUNTS)"; }; }; }
	PYTHONPATH=lib $(ORACLE)/bin/python tests/config_doubt.py
	$(BIN)/pytest -q tests/test_torch_oracle.py tests/test_torch_kinds.py tests/test_config.py

bench: $(VENV)/.ok
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_lite.py
	$(BIN)/python tests/bench_calculators.py

MUTANTS := _build/mutants
SAMPLE  ?= 400
SEED    ?= 1
EACH    ?= 20
MINUTES ?= 60
mutants: $(VENV)/.ok $(MUTANTS)/.ok
	OMP_NUM_THREADS=1 PYTHONPATH=$(MUTANTS)/tools $(BIN)/python tests/mutants.py --sample $(SAMPLE) --each $(EACH) --seed $(SEED) --minutes $(MINUTES) $(MODULES)

RUNS ?= 20
reproducible: $(VENV)/.ok
	$(BIN)/python tests/reproducible.py --runs $(RUNS) $(PARTS)

$(MUTANTS)/.ok: tests/requirements-mutants.txt $(VENV)/.ok
	$(BIN)/uv pip install -q --target $(MUTANTS)/tools -r tests/requirements-mutants.txt
	@touch $@

$(ORACLE)/.ok: tests/requirements-oracle.txt
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements-oracle.txt
	@touch $@

clean:
	rm -rf _build book/reference/api $(VENV) $(GRADING) $(ORACLE) $(SITE)/node_modules

$(VENV)/.ok: requirements.txt $(CONSTRAINTS) lib/pyproject.toml lib/workloads_book/pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "Python 3.11 or newer is needed, as $(PYTHON) or by 'make PYTHON=...'"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PINNED) uv
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -r requirements.txt $(PINNED)
	@touch $@

$(SITE)/node_modules/.ok: $(SITE)/package.json $(SITE)/package-lock.json $(VENV)/.ok
	@cd $(SITE) && npm ci --prefer-offline --ignore-scripts --no-audit --no-fund --loglevel=silent || true
	@cd $(SITE)/node_modules 2> /dev/null && test -d katex && test -f pyodide/pyodide.asm.wasm && touch .ok || \
		echo "npm did not deliver everything (see $(SITE)/package.json). The book is built without live calculators and notebooks, and without KaTeX its formulas are plain MathML; the next 'make book' tries again."

# With a repository in _config.yml the notebooks install the library from it, where it is missing.
_build/.install: _config.yml $(SITE)/notebooks.py $(VENV)/.ok
	$(BIN)/python $(SITE)/notebooks.py --install
	@mkdir -p _build && touch $@

# Exercises to assign. The course folder is nbgrader's; students' code runs in the book's environment, under limits (SECONDS=, MEMORY= in bytes;
# ISOLATION=limits: without bubblewrap).
export SUBMISSIONS VARIANT
COURSE     ?= _grading
ASSIGNMENT ?= assignment
COURSE_OF   = --course '$(COURSE)' --name '$(ASSIGNMENT)'

assignment: $(if $(VARIANT),$(VENV)/.ok)
	@$(if $(VARIANT),PYTHONPATH=lib $(BIN)/python,$(PYTHON)) $(SITE)/assignment.py $(EXERCISES) $(COURSE_OF) $(if $(VARIANT),--variant "$$VARIANT") \
	  $(if $(filter no,$(HINTS)),--no-hints)

grade: $(VENV)/.ok $(GRADING)/.ok
	@$(GRADING)/bin/python $(SITE)/grade.py $(if $(SUBMISSIONS),"$$SUBMISSIONS") $(if $(EXERCISES),--exercises $(EXERCISES)) $(if $(COLLECT),--collect) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(MEMORY),--memory $(MEMORY)) \
	  $(if $(ISOLATION),--isolation $(ISOLATION)) $(COURSE_OF)

class-site: $(VENV)/.ok $(SITE)/node_modules/.ok
	$(BIN)/python $(SITE)/lite.py
	$(BIN)/python $(SITE)/class_site.py

$(GRADING)/.ok: $(SITE)/requirements-grading.txt $(VENV)/.ok
	test -x $(GRADING)/bin/python || $(PYTHON) -m venv $(GRADING)
	$(BIN)/uv pip install -q --compile-bytecode --python $(GRADING)/bin/python -r $(SITE)/requirements-grading.txt
	@touch $@
