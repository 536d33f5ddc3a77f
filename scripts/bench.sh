#!/bin/sh
# Times the models of this repository on a few meshes (bench/forward.cpp says what the numbers mean), then collectives,
# beside Open MPI's where mpicc and mpirun are installed (apt-get install libopenmpi-dev openmpi-bin).
set -eu
cd "$(dirname "$0")/.."
models=tests/models
build/bench/bench_forward \
  examples/tiny/model.onnx:batch=4,sequence=128 \
  $models/gpt2/model.onnx:batch=4,sequence=128 \
  $models/llama/model.onnx:batch=4,sequence=128 \
  $models/bert/model.onnx:batch=4,sequence=128 \
  $models/vit/model.onnx:batch=4 \
  $models/resnet/model.onnx:batch=8 \
  --mesh tp=2 --mesh dp=2 --mesh dp=2,tp=2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ranks in 2 4; do
  peers=
  if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -O2 bench/collectives_mpi.c -o "$work/collectives_mpi"
    mpirun --allow-run-as-root --oversubscribe -n $ranks "$work/collectives_mpi" >"$work/peers"
    peers=$work/peers
  fi
  build/bench/bench_collectives $ranks $peers
done
