#!/bin/sh
# Times the models of this repository on a few meshes, which on one machine shows what splitting and communicating cost,
# not what more devices would give; then collectives (scripts/bench_comm.sh).
set -eu
cd "$(dirname "$0")/.."

# Latency and floor of MODEL under SIZES, on one rank that has all cores and on meshes that share them.
forward() {
  model=$1
  sizes=$2
  for mesh in tp=1 tp=2 dp=2 dp=2,tp=2; do
    echo "$model $sizes"
    build/tessera bench "$model" --shapes "$sizes" --mesh $mesh --iterations 20 | sed '/^median/q'
  done
}
forward examples/tiny/model.onnx batch=4,sequence=128
for name in gpt2 llama bert; do
  forward tests/models/$name/model.onnx batch=4,sequence=128
done
forward tests/models/vit/model.onnx batch=4
forward tests/models/resnet/model.onnx batch=8

exec scripts/bench_comm.sh
