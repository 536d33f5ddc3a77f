#!/bin/sh
# Times the models of this repository on a few meshes; see bench/forward.cpp for what the numbers mean.
set -eu
cd "$(dirname "$0")/.."
models=tests/models
exec build/bench/bench_forward \
  examples/tiny/model.onnx:batch=4,sequence=128 \
  $models/gpt2/model.onnx:batch=4,sequence=128 \
  $models/llama/model.onnx:batch=4,sequence=128 \
  $models/bert/model.onnx:batch=4,sequence=128 \
  $models/vit/model.onnx:batch=4 \
  $models/resnet/model.onnx:batch=8 \
  --mesh tp=2 --mesh dp=2 --mesh dp=2,tp=2
