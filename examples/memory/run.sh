#!/bin/bash
# Draws what a rank holds while a training step goes on: of one device, and of two ranks with tensor parallelism and with
# parameters stored split; then with activations computed again. Those plans are for 2048 wide layers and a batch of 256
# samples, which nobody runs here; a smaller GPT is trained with and without recomputation. Takes about a minute.
#   run.sh [STEPS [FOLDER]]: training steps; where pictures and traces go
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TESSERA_BUILD:-build}
steps=${1:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${2:-$work}
mkdir -p "$out"

examples/gpt/gpt.sh 4 2048 16 32000 256 >"$work/large.onnxtxt"
curves=()
plan() {  # NAME OPTIONS…
  local name=$1
  shift
  "$build/tessera" train "$work/large.onnxtxt" --dry-run --shapes batch=256,sequence=256 --clip 1 \
    --memory-plan "$out/$name.json" "$@" | sed -n "s/^mesh.*at its peak a rank needs/$name:/p"
  curves+=("$name=$out/$name.json")
}
echo "A GPT of 4 layers, 2048 wide, batch 256 × sequence 256; what a rank holds at its peak:"
plan one-device
plan tp2 --mesh tp=2 --preset megatron
plan fsdp2 --mesh fsdp=2
plan one-device-selective --recompute selective
plan one-device-full --recompute full
awk -f examples/memory/draw.awk "${curves[@]}" >"$out/memory.svg"

echo
echo "A GPT of 6 layers, 256 wide, trained with and without recomputation:"
examples/gpt/gpt.sh 6 256 8 320 64 | awk -f examples/initial_values.awk >"$work/gpt.onnxtxt"
"$build/examples/padded_batches" /usr/share/common-licenses/Apache-2.0 "$steps" 8 64 "$work/batches.npz"
losses=()
for recompute in none selective full; do
  "$build/tessera" train "$work/gpt.onnxtxt" --data "$work/batches.npz" --lr 1e-3 --clip 1 --quiet \
    --recompute "$recompute" --metrics "$work/$recompute.jsonl"
  losses+=("$recompute=$work/$recompute.jsonl")
done
awk -v within=0 -f examples/same_curves.awk "${losses[@]}"
