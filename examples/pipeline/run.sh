#!/bin/bash
# Trains a small Llama in stages on two ranks by several schedules, and prints the losses beside those of one rank, which
# must be the same to the last bit. Takes minutes on two cores; `run.sh 5` makes five steps only.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
steps=${1:-100}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 4 layers, 128 wide, 4 heads, one token for each byte: 869 thousand parameters.
examples/train_tiny/llama.sh 4 128 4 256 | awk -f examples/initial_values.awk >"$work/llama.onnxtxt"

curves=()
train() {  # NAME OPTIONS…
  local name=$1
  shift
  echo "$name: ${*:-one rank}"
  "$build/tessera" train "$work/llama.onnxtxt" --data /usr/share/common-licenses/Apache-2.0 --batch 8 --sequence 128 \
    --steps "$steps" --micro-batches 4 --threads 1 --lr warmup=20,peak=2e-3,cosine=500,min=1e-4 --clip 1 \
    --metrics "$work/$name.jsonl" --quiet "$@"
  curves+=("$name=$work/$name.jsonl")
}
train single
train 1f1b --mesh pp=2 --pipeline 1f1b
train interleaved --mesh pp=2 --pipeline interleaved:2
train zb-v --mesh pp=2 --pipeline zb-v
# A table of one's own: here 1f1b, as torch.distributed.pipelining writes it.
"$build/tessera" schedule 1f1b --ranks 2 --micro-batches 4 -o "$work/table.csv" >/dev/null
train table --mesh pp=2 --pipeline "$work/table.csv" --stages 1,3
echo
awk -v within=0 -f examples/same_curves.awk "${curves[@]}"
