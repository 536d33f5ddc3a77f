#!/bin/sh
# scripts/fuzz.sh BUILD SECONDS [FUZZER…]: runs each fuzzer (model, text, values, run; all if none is named) for SECONDS,
# two side by side if there are two cores, starting from the repository's models. Findings are left in BUILD/fuzz/found,
# and `BUILD/tests/fuzz/fuzz_NAME FILE` repeats one; the corpus in BUILD/fuzz grows from run to run.
set -e
build=$1 seconds=$2
shift 2
mkdir -p "$build/fuzz/found"
[ -d "$build/fuzz/run" ] || "$build/tests/fuzz/fuzz_seeds" "$build/fuzz" tests examples \
  /usr/share/libonnx-testdata/data/node
if [ $# != 1 ]; then
  [ $# -gt 1 ] || set -- run model text values
  side_by_side=$(nproc)
  [ "$side_by_side" -lt 2 ] || side_by_side=2
  printf '%s\n' "$@" | xargs -P "$side_by_side" -n 1 "$0" "$build" "$seconds"
  exit
fi
# A model that is run takes more room and time than one that is read.
longest=65536
[ "$1" != run ] || longest=262144
log=$build/fuzz/$1.log
# A tensor may be declared larger than memory: that is refused, or takes no pages until something writes them.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1"
"$build/tests/fuzz/fuzz_$1" "$build/fuzz/$1" -max_total_time="$seconds" -max_len=$longest -timeout=20 \
  -rss_limit_mb=4096 -malloc_limit_mb=1048576 \
  ${FUZZ_SEED:+-seed=$FUZZ_SEED} -print_final_stats=1 -artifact_prefix="$build/fuzz/found/$1-" 2>"$log" || {
  tail -40 "$log"
  exit 255  # xargs starts no other
}
echo "fuzz_$1, $seconds s: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs," \
  "$(sed -n 's/^stat::new_units_added: *//p' "$log") new in the corpus"
