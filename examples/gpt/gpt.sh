#!/bin/bash
# Writes a GPT in ONNX's text syntax, without initial values: gpt.sh LAYERS HIDDEN HEADS VOCABULARY CONTEXT > model.onnxtxt
# input_ids [batch, sequence] int64, sequence at most CONTEXT; logits [batch, sequence, VOCABULARY].
set -euo pipefail
awk -v layers="$1" -v hidden="$2" -v heads="$3" -v vocabulary="$4" -v context="$5" '
  function norm(result, x, name) {
    printf "  \"%s\" = LayerNormalization <axis = -1, epsilon = 1e-5> (\"%s\", \"%s.weight\", \"%s.bias\")\n", result, x,
           name, name
  }
  function linear(result, x, name) {
    printf "  \"%s.product\" = MatMul (\"%s\", \"%s.weight\")\n", name, x, name
    printf "  \"%s\" = Add (\"%s.product\", \"%s.bias\")\n", result, name, name
  }
  function declare_norm(name) { printf "  float[%d] \"%s.weight\", float[%d] \"%s.bias\",\n", hidden, name, hidden, name }
  function declare_linear(name, from, to) {
    printf "  float[%d, %d] \"%s.weight\", float[%d] \"%s.bias\",\n", from, to, name, to, name
  }
  BEGIN {
    print "<ir_version: 11, opset_import: [\"\" : 24]>"
    printf "gpt (int64[batch, sequence] input_ids) => (float[batch, sequence, %d] logits) <\n", vocabulary
    printf "  float[%d, %d] \"tokens.weight\", float[%d, %d] \"positions.weight\",\n", vocabulary, hidden, context, hidden
    for (i = 0; i < layers; ++i) {
      l = "layer." i "."
      declare_norm(l "attention_norm")
      declare_linear(l "q", hidden, hidden)
      declare_linear(l "k", hidden, hidden)
      declare_linear(l "v", hidden, hidden)
      declare_linear(l "o", hidden, hidden)
      declare_norm(l "mlp_norm")
      declare_linear(l "fc1", hidden, 4 * hidden)
      declare_linear(l "fc2", 4 * hidden, hidden)
    }
    declare_norm("norm")
    printf "  float[%d, %d] \"head.weight\",\n", hidden, vocabulary
    print "  int64 zero = {0}, int64 one = {1}\n> {"
    print "  length = Shape <start = 1, end = 2> (input_ids)"
    print "  length_scalar = Squeeze (length)"
    print "  range = Range (zero, length_scalar, one)"
    print "  embedded = Gather (\"tokens.weight\", input_ids)"
    print "  placed = Gather (\"positions.weight\", range)"
    print "  \"h.0\" = Add (embedded, placed)"
    for (i = 0; i < layers; ++i) {
      l = "layer." i "."
      norm(l "x", "h." i, l "attention_norm")
      linear(l "queries", l "x", l "q")
      linear(l "keys", l "x", l "k")
      linear(l "values", l "x", l "v")
      printf "  \"%sattention\" = Attention <is_causal = 1, q_num_heads = %d, kv_num_heads = %d> ", l, heads, heads
      printf "(\"%squeries\", \"%skeys\", \"%svalues\")\n", l, l, l
      linear(l "attended", l "attention", l "o")
      printf "  \"%sh\" = Add (\"h.%d\", \"%sattended\")\n", l, i, l
      norm(l "y", l "h", l "mlp_norm")
      linear(l "wide", l "y", l "fc1")
      printf "  \"%sactive\" = Gelu (\"%swide\")\n", l, l
      linear(l "narrow", l "active", l "fc2")
      printf "  \"h.%d\" = Add (\"%sh\", \"%snarrow\")\n", i + 1, l, l
    }
    norm("normed", "h." layers, "norm")
    print "  logits = MatMul (normed, \"head.weight\")\n}"
  }'
