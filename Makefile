# The front door. Needs make and a Debian 12 (root or sudo); everything else is installed from apt.txt, and what
# only tests need from apt-tests.txt.
#   make run       build, verify the example model on five meshes, let it continue a text
#   make test      build, run every test
#   make test-all  the same, and everything that these tests take samples of; takes hours
# More: build, bench, fuzz, conformance, sanitize, sanitize-short, format, install PREFIX=DIR, clean.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
FUZZERS ?= run model text values

.PHONY: build run test test-all bench fuzz conformance sanitize sanitize-short format install clean packages test-packages
.NOTPARALLEL:

# The targets for users: the command with its engines, and the examples that pages and scripts run. Tests are the larger half; `make test` builds them.
build: packages
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target tessera_cli continue_text hello padded_batches \
	  tensor_parallel_mlp train_tiny

# The example needs the command only.
run: packages
	@cmake --preset release --log-level=WARNING
	@cmake --build --preset release -j $(JOBS) --target tessera_cli
	@examples/tiny/run.sh

test: test-packages
	@cmake --preset release --log-level=WARNING -DTESSERA_BENCH=OFF
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release

# TESSERA_SAMPLE=all has tests try what they take samples of: every legal sharding of every operator's operands, training
# on every product of presets and engines, memory for every command, type and mesh, and more random programs; and compiles
# the programs of bench/. With `ctest --preset release -R NAME`, one of them does.
test-all: export TESSERA_SAMPLE = all
test-all: test-packages
	@cmake --preset release --log-level=WARNING -DTESSERA_BENCH=ON
	@cmake --build --preset release -j $(JOBS)
	@ctest --preset release --timeout 36000

bench: packages
	@cmake --preset release --log-level=WARNING -DTESSERA_BENCH=ON
	@cmake --build --preset release -j $(JOBS)
	@scripts/bench.sh

# libFuzzer against the readers, and against the whole way from a model to a run, each for FUZZ_SECONDS, under
# AddressSanitizer and UndefinedBehaviorSanitizer.
fuzz:
	@scripts/install_packages.sh libonnx-testdata clang-16 libclang-rt-16-dev libomp-16-dev
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build --preset fuzz -j $(JOBS) --target $(addprefix fuzz_,$(FUZZERS)) fuzz_seeds
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS) $(FUZZERS)

# Checks written programs with other tools: onnx.checker, and ONNX's reference evaluator (from PyPI).
conformance: build
	@scripts/install_packages.sh python3-venv
	@cmake --build --preset release -j $(JOBS) --target node_test_sweep
	@scripts/conformance.sh

# The quick tests that use several threads, under ThreadSanitizer; leaves out tests that measure time or start processes.
sanitize-short: packages
	@cmake --preset tsan --log-level=WARNING
	@cmake --build --preset tsan -j $(JOBS) --target comm_test
	@ctest --preset tsan -L '^comm$$' -R Local \
	  -E 'timeout|times_out|later_than|no_more_than|OverlapProfile'

sanitize: test-packages
	@for preset in asan tsan; do \
	  cmake --preset $$preset --log-level=WARNING && cmake --build --preset $$preset -j $(JOBS) && \
	  ctest --preset $$preset || exit 1; \
	done

format:
	@scripts/install_packages.sh clang-format
	@git ls-files '*.h' '*.cpp' | xargs clang-format -i

install: build
	@cmake --install build --prefix '$(PREFIX)'

packages:
	@scripts/install_packages.sh

test-packages:
	@scripts/install_packages.sh $$(cat apt-tests.txt)

clean:
	@rm -rf build build-dev build-asan build-tsan build-fuzz
