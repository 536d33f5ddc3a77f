#!/bin/sh
# Checks written programs with other tools: every form of a few models passes onnx.checker's full check; programs of Send
# and Recv alone run under ONNX's reference evaluator with our answers; programs whose models tools have saved anew are
# accepted. Holds tests/conformance/opset28.txt equal to what the newest node tests do, compares the operators that
# ONNX Runtime's optimizers write with its own, and models that ONNX Runtime quantizes; runs models that onnx-ir has
# annotated for devices. Installs PyPI's onnx, onnx-ir, onnxscript, onnxruntime and numpy into build/onnx-venv;
# `scripts/conformance.sh packages` only does that. `scripts/conformance.sh training` trains models of several families,
# as PyTorch exports them, beside PyTorch, which it installs as well (some gigabytes).
set -eu
cd "$(dirname "$0")/.."
venv=build/onnx-venv
has_packages='import onnx, onnx_ir, onnxscript, onnxruntime, numpy; assert onnx.__version__.startswith("1.23.")
assert onnx_ir.__version__.startswith("1.1.")'
if [ ! -x $venv/bin/python ] || ! $venv/bin/python -c "$has_packages" 2>/dev/null; then
  python3 -m venv $venv
  $venv/bin/pip install -q 'onnx==1.23.*' 'onnx-ir==1.1.*' onnxscript onnxruntime numpy
fi
[ "${1:-}" != packages ] || exit 0
if [ "${1:-}" = training ]; then
  $venv/bin/pip install -q torch transformers
  exec $venv/bin/python tests/conformance/training_families.py --tessera build/tessera
fi
work=$(mktemp -d)
sweep=
trap '[ -z "$sweep" ] || kill $sweep 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/forms"

# It takes longest, and keeps one core busy most of the time: it runs beside all the others, and is reported last. It
# writes small programs by the thousand: a disk that makes each durable would take most of its time.
memory=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || memory=/dev/shm
sweep_nodes() {
  $venv/bin/python tests/conformance/newest_cases.py "$work/nodes" &&
    TMPDIR=$memory build/tests/node_test_sweep --feeds --list tests/conformance/opset28.txt --splits tests/conformance/splits28.txt \
      "$work/nodes"
}
sweep_nodes >"$work/sweep" 2>&1 &
sweep=$!

model_of() {
  if [ "$1" = tiny ]; then echo examples/tiny; else echo "tests/models/$1"; fi
}

# What a program is written as, each option with each other once: lower, order, rank identity and type, form.
forms='collectives tokens input integer mpmd
  primitives position input opaque mpmd
  collectives position op opaque mpmd
  primitives tokens op opaque mpmd
  collectives position constant integer mpmd
  primitives tokens constant integer mpmd
  collectives tokens op integer spmd
  primitives position op integer spmd
  collectives position op integer parallel-for
  primitives tokens op integer parallel-for'

echo "Every form, under onnx.checker:"
for name in mlp tiny gpt2; do
  while read -r lower order rank type form; do
    build/tessera shard "$(model_of $name)/model.onnx" --mesh dp=2,tp=3 --quiet --lower=$lower --order=$order \
      --rank-id=$rank --rank-type=$type --form=$form -o "$work/forms/$name-$lower-$order-$rank-$type-$form"
  done <<END
$forms
END
done
# Nodes on some ranks only (docs/places.md), as shard and its likes are told of them.
staged='--mesh pp=2,tp=2 --place m.model.embed_tokens=pp:0 --place m.model.layers.0=pp:0 --place m.model.layers.1=pp:0
  --place m.model.layers.2=pp:0 --place m.model.layers.*=pp:1 --place m.model.norm=pp:1 --place m.lm_head=pp:1'
set -f
for form in mpmd spmd parallel-for; do
  for lower in collectives primitives; do
    build/tessera shard examples/tiny/model.onnx $staged --quiet --lower=$lower --form=$form \
      -o "$work/forms/staged-$lower-$form"
  done
done
set +f
$venv/bin/python tests/conformance/check_files.py "$work/forms"

echo "Under the reference evaluator:"
for name in mlp tiny gpt2; do
  model=$(model_of $name)
  sizes=
  [ $name = tiny ] && sizes='--shapes batch=3,sequence=37'  # sums large enough for rings
  for mesh in tp=2 tp=3 dp=2,tp=2; do
    for rank in input constant; do
      [ $rank$mesh = constanttp=2 ] || [ $rank = input ] || continue
      build/tessera shard "$model/model.onnx" --mesh $mesh --quiet --lower=primitives --rank-id=$rank $sizes -o "$work/out"
      build/tessera run "$work/out" --inputs "$model/inputs_0.npz" --outputs "$work/ours.npz" --quiet
      printf '%s %s rank-id=%s: ' $name $mesh $rank
      $venv/bin/python tests/conformance/reference_cluster.py "$work/out" --inputs "$model/inputs_0.npz" \
        --expect "$work/ours.npz"
    done
  done
done

build/tessera shard "$(model_of mlp)/model.onnx" --mesh tp=3 --quiet --lower=primitives --rank-id=input --order=position \
  -o "$work/out"
build/tessera run "$work/out" --inputs "$(model_of mlp)/inputs_0.npz" --outputs "$work/ours.npz" --quiet
printf 'mlp tp=3 without tokens: '
$venv/bin/python tests/conformance/reference_cluster.py "$work/out" --inputs "$(model_of mlp)/inputs_0.npz" \
  --expect "$work/ours.npz"

set -f
build/tessera shard examples/tiny/model.onnx $staged --shapes batch=3,sequence=37 --quiet --lower=primitives \
  --rank-id=input -o "$work/out"
set +f
build/tessera run "$work/out" --inputs examples/tiny/inputs_0.npz --outputs "$work/ours.npz" --quiet
printf 'tiny pp=2,tp=2 in stages: '
$venv/bin/python tests/conformance/reference_cluster.py "$work/out" --inputs examples/tiny/inputs_0.npz \
  --expect "$work/ours.npz"

echo "Saved by other tools:"
set -f
for name in mlp gpt2 staged; do
  model=$(model_of $name)
  mesh='--mesh dp=2,tp=2'
  [ $name = staged ] && model=examples/tiny && mesh=$staged
  for form in mpmd spmd parallel-for; do
    for lower in collectives primitives; do
      build/tessera shard $model/model.onnx $mesh --quiet --form=$form --lower=$lower -o "$work/out"
      build/tessera run "$work/out" --inputs $model/inputs_0.npz --outputs "$work/ours.npz" --quiet
      printf '%s %s %s: ' $name $form $lower
      $venv/bin/python tests/conformance/save_again.py build/tessera "$work/out" --inputs $model/inputs_0.npz \
        --expect "$work/ours.npz"
    done
  done
done
set +f

echo "Models that onnx-ir has annotated for devices, and annotations of ours in other tools:"
$venv/bin/python tests/conformance/annotated_models.py build/tessera tests/models/mlp examples/tiny tests/models/gpt2 \
  tests/models/resnet tests/models/moe-masks

echo "Operators of com.microsoft beside ONNX Runtime's:"
$venv/bin/python tests/conformance/microsoft_cases.py build/tessera

echo "Decoders as ONNX Runtime's builder and Optimum write them:"
$venv/bin/python tests/conformance/decoders.py build/tessera

echo "Models that ONNX Runtime has quantized:"
$venv/bin/python tests/conformance/quantized_models.py build/tessera tests/models/mlp examples/tiny

echo "Quantized experts beside ONNX Runtime's:"
$venv/bin/python tests/conformance/quantized_experts.py build/tessera

echo "The node tests of opset 28, alone, on 2 and 3 ranks, with operands as initializers, constants and results, and in"
echo "every split of an operand:"
swept=0
wait $sweep || swept=$?
sweep=
cat "$work/sweep"
[ $swept = 0 ] || exit $swept
