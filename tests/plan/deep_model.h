#pragma once

#include <fmt/format.h>

#include <string>

namespace tessera::test {

/// A Llama of many alike layers, without initial values.
inline std::string deep_model(int layers, int hidden = 32, int words = 96) {
  const int wide = 3 * hidden;
  std::string parameters = fmt::format("float[{0}, {1}] embedding, float[{1}, {0}] head", words, hidden);
  std::string nodes = "  h0 = Gather (embedding, ids)\n";
  for (int i = 0; i < layers; ++i) {
    parameters += fmt::format(
        ", float[{0}] \"l.{2}.n\", float[{0}, {0}] \"l.{2}.q\", float[{0}, {0}] \"l.{2}.k\", float[{0}, {0}] "
        "\"l.{2}.v\""
        ", float[{0}, {0}] \"l.{2}.o\", float[{0}] \"l.{2}.m\", float[{0}, {1}] \"l.{2}.up\", float[{1}, {0}] "
        "\"l.{2}.down\"",
        hidden, wide, i);
    nodes += fmt::format(R"(  x{0} = RMSNormalization <axis = -1> (h{0}, "l.{0}.n")
  q{0} = MatMul (x{0}, "l.{0}.q")
  k{0} = MatMul (x{0}, "l.{0}.k")
  v{0} = MatMul (x{0}, "l.{0}.v")
  a{0} = Attention <is_causal = 1, q_num_heads = 16, kv_num_heads = 16> (q{0}, k{0}, v{0})
  o{0} = MatMul (a{0}, "l.{0}.o")
  r{0} = Add (h{0}, o{0})
  y{0} = RMSNormalization <axis = -1> (r{0}, "l.{0}.m")
  u{0} = MatMul (y{0}, "l.{0}.up")
  g{0} = Sigmoid (u{0})
  s{0} = Mul (u{0}, g{0})
  d{0} = MatMul (s{0}, "l.{0}.down")
  h{1} = Add (r{0}, d{0})
)",
                         i, i + 1);
  }
  return fmt::format(
      "<ir_version: 11, opset_import: [\"\" : 24]>\ndeep (int64[batch, s] ids) => (float[batch, s, {}] logits) <{}> "
      "{{\n{}  logits = MatMul (h{}, head)\n}}\n",
      words, parameters, nodes, layers);
}

}  // namespace tessera::test
