#!/bin/sh
# The tests with a sanitizer: tools/sanitize.sh address,undefined | thread. Python itself is not instrumented, so the
# sanitizer's runtime is preloaded there; leaks are looked for in the unit tests, where every allocation is ours.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-address,undefined}
dir=build-$(echo "$kind" | tr ',' '-')
make build .venv/.ready-test BUILD="$dir" CMAKE_FLAGS="-DSANITIZE=$kind -DCMAKE_BUILD_TYPE=RelWithDebInfo"
suppress=$(pwd)/tools/suppressions
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export LSAN_OPTIONS=suppressions="$suppress/leak.txt"
export TSAN_OPTIONS=suppressions="$suppress/thread.txt":halt_on_error=1:second_deadlock_stack=1
case $kind in
  thread) runtime=libtsan.so; tests="${TESTS:-tests/test_threads.py}" ;;
  *) runtime=libasan.so; tests="${TESTS:-tests src}" ;;
esac
"$dir/unit_tests"
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export ONNXRUNTIME_EP_MLX_LIBRARY="$(pwd)/$dir/libonnxruntime_mlx_ep.so"
cc=${CC:-cc}
# shellcheck disable=SC2086
LD_PRELOAD="$($cc -print-file-name=$runtime) $($cc -print-file-name=libstdc++.so)" .venv/bin/python -m pytest -q $tests
