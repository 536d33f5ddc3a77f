#!/bin/bash
# Prints what a rank holds when 64 ranks train a GPT of 7.5 billion parameters, beside the formulas of ZeRO. Plans only:
# nothing is allocated or run. Takes about a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
layers=${1:-36} hidden=${2:-4096}
ranks=64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
examples/gpt/gpt.sh "$layers" "$hidden" 32 32000 1024 >"$work/gpt.onnxtxt"

# "key": value of the JSON that comes in, in gigabytes (1e9).
gigabytes() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" <<<"$json" | head -n 1 | awk '{ printf "%.1f", $1 / 1e9 }'; }

parameters=$(awk '
  /^ *float\[/ {
    for (rest = $0; match(rest, /float\[[0-9, ]+\] "/); rest = substr(rest, RSTART + RLENGTH)) {
      n = split(substr(rest, RSTART + 6, RLENGTH - 9), extent, /, */)
      count = extent[1]
      for (i = 2; i <= n; ++i) count *= extent[i]
      sum += count
    }
  }
  END { printf "%.0f", sum }' "$work/gpt.onnxtxt")
formula() { awk -v p="$parameters" -v bytes="$1" 'BEGIN { printf "%.1f", p * bytes / 1e9 }'; }

echo "$parameters parameters, $ranks ranks, a sample of 128 tokens each; GB of a rank"
row='%-31s  %7s  %10s  %9s  %9s  %11s  %7s  %14s\n'
printf "$row" plan peak parameters optimizer gradients activations buffers "ZeRO's formula"
plan() {  # BYTES OF A PARAMETER, OPTIONS
  local bytes=$1
  shift
  json=$("$build/tessera" train "$work/gpt.onnxtxt" --dry-run --shapes batch=$ranks,sequence=128 --clip 1 \
    --mesh dp=$ranks --preset "$@" --json)
  printf "$row" "$*" "$(gigabytes peak_bytes)" "$(gigabytes parameters)" "$(gigabytes optimizer)" \
    "$(gigabytes gradients)" "$(gigabytes activations)" "$(gigabytes buffers)" "$(formula "$bytes")"
}
# Bytes of parameters, gradients and optimizer: 4 + 4 + 8 in float32; 2 + 2 + 12 in mixed precision.
plan 16 dp
plan 4.1875 zero2
plan 0.25 fsdp
plan 16 dp --dtype bf16
plan 2.21875 fsdp --dtype bf16 --keep-gathered '*'
plan 0.25 fsdp --dtype bf16
