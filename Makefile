# The commands of the README. `make help` lists them; `make` alone builds.

# Lets ccache serve builds that use precompiled headers, and builds of another clone.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PYTHON ?= python3

# What a user runs; the tests are built by `make test`.
PROGRAMS := sluice sluiced bench_contention example_latency example_throughput \
  sluice_shim sluice_shim_nvml sluice_emulator sluice_emulator_nvml sluice_engine_program sluice_capi

.PHONY: build dist install test demo conformance lint format asan tsan fuzz clean help

build: build/build.ninja ## build the programs into build/bin (installs what is missing first)
	@cmake --build build -j $(JOBS) --target $(PROGRAMS)

dist: build/build.ninja .deps/dist.stamp ## the release: build/dist/sluice-VERSION-linux-x86_64.tar.gz, which runs anywhere it is unpacked
	@scripts/dist --jobs $(JOBS)

install: build/build.ninja .deps/dist.stamp ## installs that release into PREFIX (~/.local, for root /usr/local); scripts/install --uninstall removes it
	@release=$$(scripts/dist --jobs $(JOBS)) && scripts/install "$$release" $(if $(PREFIX),--prefix "$(PREFIX)")

test: build/build.ninja .deps/test.stamp ## build everything and run all tests
	@cmake --build build -j $(JOBS)
	@ctest --preset release -j $(JOBS)

demo: build ## a latency job and a throughput job on one GPU (or the emulated one), with a report
	@build/bin/bench_contention --out out/demo
	@$(PYTHON) -c 'import json; r = json.load(open("out/demo/report.json")); \
	  print("report: out/demo/report.html, out/demo/report.json (%s, %s)" % \
	        (r["device"], "simulated" if r["simulated"] else "measured on this GPU"))'

conformance: build/build.ninja .deps/test.stamp ## ONNX's conformance cases against the engine; the last line counts them
	@cmake --build build -j $(JOBS) --target onnx_conformance
	@build/bin/onnx_conformance

lint: build/build.ninja .deps/test.stamp .deps/lint.stamp ## formatting, clang-tidy, shellcheck, arrows between rooms, hygiene
	@scripts/lint

format: .deps/lint.stamp ## bring all C++ files into the house style
	@git ls-files -z -- '*.h' '*.cc' '*.c' '*.cu' | xargs -0 clang-format-14 -i

asan: .deps/build.stamp .deps/test.stamp .deps/lint.stamp ## all tests under AddressSanitizer and UBSan
	@cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -j $(JOBS)

tsan: .deps/build.stamp .deps/test.stamp ## the tests labelled concurrent, under ThreadSanitizer
	@cmake --preset tsan
	@cmake --build --preset tsan -j $(JOBS) --target concurrent_tests
	@ctest --preset tsan -j $(JOBS)

fuzz: .deps/build.stamp .deps/test.stamp .deps/lint.stamp ## every fuzzer for FUZZ_SECONDS (60)
	@scripts/fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS)

clean: ## remove what was built and measured; keeps the fetched headers
	rm -rf build out

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build/build.ninja: CMakePresets.json .deps/build.stamp
	@cmake --preset release

# A stamp a set of packages, so that a second `make` does not look again.
.deps/%.stamp: scripts/bootstrap
	@scripts/bootstrap $*
	@mkdir -p .deps && touch $@
