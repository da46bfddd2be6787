# Everything starts from a Python 3.10+ interpreter, a C/C++ compiler and make; the rest is installed into .venv, pinned.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
BUILD  ?= build
CMAKE_FLAGS ?=
PROMPT ?= What is the capital of France?
ARGS   ?=
READY  := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test

.DEFAULT_GOAL := help
.PHONY: help setup build demo test unit-test python-test sanitize tsan bench clean distclean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

setup: $(READY)  ## create .venv with the pinned packages

$(READY): requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed; set PYTHON=")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	$(PY) -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "onnxruntime_ep_mlx.pth").write_text(str(pathlib.Path("python").resolve()) + "\n")'
	touch $@

$(READY_TEST): requirements-test.txt $(READY)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-test.txt
	touch $@

$(BUILD)/build.ninja: $(READY) CMakeLists.txt
	$(VENV)/bin/cmake -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(VENV)/bin/ninja) -DPython_EXECUTABLE=$(abspath $(PY)) $(CMAKE_FLAGS)

build: $(BUILD)/build.ninja  ## set up .venv and build the library
	$(VENV)/bin/ninja -C $(BUILD) --quiet

demo: build      ## run a real language model and a sentence-embedding model on MLX (PROMPT="…")
	$(PY) -m onnxruntime_ep_mlx.demo --prompt "$(PROMPT)" $(ARGS)

test: unit-test python-test  ## build and run every test

unit-test: build ## the C unit tests (no ONNX Runtime in the process)
	$(BUILD)/unit_tests

python-test: build $(READY_TEST)  ## the tests through ONNX Runtime
	$(PY) -m pytest -q $(ARGS)

sanitize:        ## the whole test suite under AddressSanitizer and UBSan
	tools/sanitize.sh address,undefined

tsan:            ## the thread tests under ThreadSanitizer
	tools/sanitize.sh thread

bench: build $(READY_TEST)  ## measure: products; compiled routes against eager ones and hand-written MLX
	$(PY) bench/run.py $(ARGS)

clean:           ## remove what was built
	rm -rf build build-*

distclean: clean ## remove .venv and made models too
	rm -rf $(VENV) models
