#!/bin/sh
# An all-reduce among two hosts of four ranks with 1 Gbit/s between them, as the library does it over all eight and by
# levels: inside the hosts, between them, inside. The hosts are network namespaces (examples/two_hosts), so it wants root
# and iproute2. By hand:
#
#   scripts/multislice.sh [gloo|mpi] [OPTIONS of tessera bench comm]
#
# LEAST and MOST (bytes) and RATE (1gbit) may be set. Prints a row for each of "all_reduce" and "all_reduce by levels"
# over tp=8, and the latency and bandwidth of the links.
set -eu
cd "$(dirname "$0")/.."
engine=${1:-gloo}
[ $# -gt 0 ] && shift
exec examples/two_hosts/run.sh --rate "${RATE:-1gbit}" "$engine" 4 "$PWD/build/tessera" bench comm --mesh tp=8 \
  --per-host 4 --engine "$engine" --share-memory --collectives all_reduce --min "${LEAST:-262144}" \
  --max "${MOST:-67108864}" --seconds 0.5 "$@"
