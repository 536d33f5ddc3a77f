#!/bin/bash
# Trains a small Llama on a text that every Debian has, on two meshes, whose losses must be the same; then lets it
# continue a text. Takes minutes on two cores; `run.sh 5` makes five steps only.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
text=/usr/share/common-licenses/Apache-2.0
steps=${1:-500}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 4 layers, 128 wide, 4 heads, one token for each byte: 869 thousand parameters.
examples/train_tiny/llama.sh 4 128 4 256 | awk -f examples/initial_values.awk >"$work/llama.onnxtxt"

train() {  # MESH NAME
  "$build/tessera" train "$work/llama.onnxtxt" --data "$text" --batch 8 --sequence 128 --steps "$steps" \
    --lr warmup=20,peak=2e-3,cosine=500,min=1e-4 --mesh "$1" --metrics "$work/$2.jsonl" --save-final "$work/$2.onnx"
}
train dp=2 dp
echo
train fsdp=2,tp=1 fsdp
echo
awk -v within=1e-5 -f examples/same_curves.awk dp=2="$work/dp.jsonl" fsdp=2,tp=1="$work/fsdp.jsonl"
echo
echo "The first steps, and what they were when this example was written:"
known=$(wc -l <examples/train_tiny/curve.jsonl)
head -n "$known" "$work/dp.jsonl" >"$work/first.jsonl"
awk -v within=1e-4 -f examples/same_curves.awk now="$work/first.jsonl" then=examples/train_tiny/curve.jsonl
echo
echo "The same steps from C++:"
"$build/examples/train_tiny" "$work/llama.onnxtxt" "$text" dp=2 "$(wc -l <"$work/first.jsonl")" "$work/cpp.jsonl"
awk -v within=1e-6 -f examples/same_curves.awk command="$work/first.jsonl" cpp="$work/cpp.jsonl"
echo
# Each sample of 128 bytes begins where it began in the epoch before, so the model knows the text from there best: a
# sample begins with these words.
echo "The text that the trained model continues:"
echo
"$build/examples/continue_text" "$work/fsdp.onnx" tp=1 "You explicitly state" 108
