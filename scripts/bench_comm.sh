#!/bin/sh
# Times collectives between ranks of this machine, threads and processes, beside Open MPI's and Gloo's in the same run,
# where bench/ was built with them (`make bench`). RANKS="2 4", LEAST, MOST (bytes) and SECONDS_A_POINT may be set.
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/build/bench
least=${LEAST:-1024} most=${MOST:-67108864} seconds=${SECONDS_A_POINT:-0.1}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ranks in ${RANKS:-2 4}; do
  set --
  if [ -x "$bin/bench_collectives_mpi" ] && command -v mpirun >/dev/null; then
    mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$bin/bench_collectives_mpi" "$least" "$most" "$seconds" \
      >"$work/mpi"
    set -- "$@" --beside "Open MPI=$work/mpi"
  fi
  if [ -x "$bin/bench_collectives_gloo" ]; then
    mkdir "$work/meet$ranks"
    rank=1
    while [ $rank -lt "$ranks" ]; do
      "$bin/bench_collectives_gloo" $rank "$ranks" "$work/meet$ranks" "$least" "$most" "$seconds" &
      rank=$((rank + 1))
    done
    "$bin/bench_collectives_gloo" 0 "$ranks" "$work/meet$ranks" "$least" "$most" "$seconds" >"$work/gloo"
    wait
    set -- "$@" --beside "Gloo=$work/gloo"
  fi
  for engine in "" "--spawn $ranks"; do
    echo "$ranks ranks, ${engine:-threads}"
    # shellcheck disable=SC2086
    build/tessera bench comm --mesh all="$ranks" --min "$least" --max "$most" --seconds "$seconds" $engine "$@"
  done
done
