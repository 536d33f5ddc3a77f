#!/bin/bash
# Writes a Llama in ONNX's text syntax, without initial values: llama.sh LAYERS HIDDEN HEADS VOCABULARY > model.onnxtxt
# input_ids [batch, sequence] int64; logits [batch, sequence, VOCABULARY]. The feed-forward layers are 8/3 HIDDEN wide,
# rounded up to a multiple of 32.
set -euo pipefail
awk -v layers="$1" -v hidden="$2" -v heads="$3" -v vocabulary="$4" '
  function matmul(result, x, weight) { printf "  \"%s\" = MatMul (\"%s\", \"%s\")\n", result, x, weight }
  function norm(result, x, weight) {
    printf "  \"%s\" = RMSNormalization <axis = -1, epsilon = 1e-5> (\"%s\", \"%s\")\n", result, x, weight
  }
  function rotate(result, x) {
    printf "  \"%s\" = RotaryEmbedding <num_heads = %d> (\"%s\", cos, sin, positions)\n", result, heads, x
  }
  BEGIN {
    wide = int((hidden * 8 / 3 + 31) / 32) * 32
    width = hidden / heads
    print "<ir_version: 11, opset_import: [\"\" : 24]>"
    printf "llama (int64[batch, sequence] input_ids) => (float[batch, sequence, %d] logits) <\n", vocabulary
    printf "  float[%d, %d] \"embedding.weight\",\n", vocabulary, hidden
    for (i = 0; i < layers; ++i) {
      printf "  float[%d] \"layer.%d.attention_norm.weight\",\n", hidden, i
      printf "  float[%d, %d] \"layer.%d.q.weight\", float[%d, %d] \"layer.%d.k.weight\",\n", hidden, hidden, i, hidden,
             hidden, i
      printf "  float[%d, %d] \"layer.%d.v.weight\", float[%d, %d] \"layer.%d.o.weight\",\n", hidden, hidden, i, hidden,
             hidden, i
      printf "  float[%d] \"layer.%d.mlp_norm.weight\",\n", hidden, i
      printf "  float[%d, %d] \"layer.%d.gate.weight\", float[%d, %d] \"layer.%d.up.weight\",\n", hidden, wide, i, hidden,
             wide, i
      printf "  float[%d, %d] \"layer.%d.down.weight\",\n", wide, hidden, i
    }
    printf "  float[%d] \"norm.weight\", float[%d, %d] \"head.weight\",\n", hidden, hidden, vocabulary
    print "  int64 zero = {0}, int64 one = {1}, int64[1] last = {1}\n> {"
    printf "  frequencies = Constant <value = float[1, %d] {", width / 2
    for (i = 0; i < width / 2; ++i) printf "%s%.8g", i ? ", " : "", exp(-log(10000) * 2 * i / width)
    print "}> ()"
    print "  ids_shape = Shape (input_ids)"
    print "  length = Shape <start = 1, end = 2> (input_ids)"
    print "  length_scalar = Squeeze (length)"
    print "  range = Range (zero, length_scalar, one)"
    print "  positions = Expand (range, ids_shape)"
    print "  range_float = Cast <to = 1> (range)"
    print "  range_column = Unsqueeze (range_float, last)"
    print "  angles = Mul (range_column, frequencies)"
    print "  cos = Cos (angles)"
    print "  sin = Sin (angles)"
    print "  \"h.0\" = Gather (\"embedding.weight\", input_ids)"
    for (i = 0; i < layers; ++i) {
      l = "layer." i "."
      norm(l "x", "h." i, l "attention_norm.weight")
      matmul(l "q", l "x", l "q.weight")
      matmul(l "k", l "x", l "k.weight")
      matmul(l "v", l "x", l "v.weight")
      rotate(l "q_rotated", l "q")
      rotate(l "k_rotated", l "k")
      printf "  \"%sattention\" = Attention <is_causal = 1, q_num_heads = %d, kv_num_heads = %d> ", l, heads, heads
      printf "(\"%sq_rotated\", \"%sk_rotated\", \"%sv\")\n", l, l, l
      matmul(l "o", l "attention", l "o.weight")
      printf "  \"%sh\" = Add (\"h.%d\", \"%so\")\n", l, i, l
      norm(l "y", l "h", l "mlp_norm.weight")
      matmul(l "gate", l "y", l "gate.weight")
      matmul(l "up", l "y", l "up.weight")
      printf "  \"%sactive\" = Swish (\"%sgate\")\n", l, l
      printf "  \"%sproduct\" = Mul (\"%sactive\", \"%sup\")\n", l, l, l
      matmul(l "down", l "product", l "down.weight")
      printf "  \"h.%d\" = Add (\"%sh\", \"%sdown\")\n", i + 1, l, l
    }
    norm("normed", "h." layers, "norm.weight")
    matmul("logits", "normed", "head.weight")
    print "}"
  }'
