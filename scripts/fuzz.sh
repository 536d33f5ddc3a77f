#!/bin/sh
# scripts/fuzz.sh BUILD SECONDS: each fuzzer for so many seconds, from the models at hand. What it finds is left in
# BUILD/fuzz/found, and `BUILD/tests/fuzz/fuzz_NAME FILE` repeats it; the corpus in BUILD/fuzz grows from run to run.
set -e
build=$1 seconds=$2
mkdir -p "$build/fuzz/found"
[ -d "$build/fuzz/model" ] || "$build/tests/fuzz/fuzz_seeds" "$build/fuzz" tests /usr/share/libonnx-testdata/data/node
for reader in model text values; do
  echo "fuzz_$reader, $seconds s"
  "$build/tests/fuzz/fuzz_$reader" "$build/fuzz/$reader" -max_total_time="$seconds" -max_len=65536 -timeout=20 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$build/fuzz/found/$reader-" 2>"$build/fuzz/$reader.log" ||
    { tail -40 "$build/fuzz/$reader.log"; exit 1; }
  grep -E "number_of_executed_units|new_units_added" "$build/fuzz/$reader.log"
done
