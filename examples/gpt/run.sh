#!/bin/bash
# Trains a GPT on one device and in four ways on two ranks, and prints the losses side by side, which must be the same.
# Takes a minute or two on two cores; `run.sh 5` makes five steps only.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
steps=${1:-10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 2 layers, 256 wide, 8 heads. The tokens are 256 bytes and one for padding; the vocabulary is padded to 320.
examples/gpt/gpt.sh 2 256 8 320 64 | awk -f examples/initial_values.awk >"$work/gpt.onnxtxt"
"$build/examples/padded_batches" /usr/share/common-licenses/Apache-2.0 "$steps" 8 64 "$work/batches.npz"

curves=()
train() {  # NAME OPTIONS…
  local name=$1
  shift
  echo "$name: ${*:-one device}"
  "$build/tessera" train "$work/gpt.onnxtxt" --data "$work/batches.npz" --lr 1e-3 --clip 1 \
    --metrics "$work/$name.jsonl" --quiet "$@"
  curves+=("$name=$work/$name.jsonl")
}
train single
train tensor --mesh tp=2 --preset megatron
# The head stays whole: so do the logits, and the loss needs no communication.
train whole-head --mesh tp=2 --preset megatron --annotate 'head.weight=[-,-]'
train sequence --mesh tp=2 --preset megatron+sequence
train data --mesh dp=2
echo
awk -v within=1e-5 -f examples/same_curves.awk "${curves[@]}"
