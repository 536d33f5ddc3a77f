#include "stages/models.h"

#include <fmt/format.h>

namespace tessera::stages::test {
namespace {

// Attention of what `result` says to `memory`, and a residual sum: "h" → "r".
std::string attention(const std::string& layer, const std::string& h, const std::string& memory, const std::string& r,
                      std::string& parameters) {
  for (const char* weight : {"q", "k", "v", "o"}) parameters += fmt::format(", float[32, 32] \"{}.{}\"", layer, weight);
  parameters += fmt::format(", float[32] \"{}.n\"", layer);
  return fmt::format(R"(  "{0}.x" = RMSNormalization <axis = -1> ({1}, "{0}.n")
  "{0}.queries" = MatMul ("{0}.x", "{0}.q")
  "{0}.keys" = MatMul ({2}, "{0}.k")
  "{0}.values" = MatMul ({2}, "{0}.v")
  "{0}.a" = Attention <q_num_heads = 4, kv_num_heads = 4> ("{0}.queries", "{0}.keys", "{0}.values")
  "{0}.oa" = MatMul ("{0}.a", "{0}.o")
  {3} = Add ({1}, "{0}.oa")
)",
                     layer, h, memory.empty() ? fmt::format("\"{}.x\"", layer) : memory, r);
}

std::string feed_forward(const std::string& layer, const std::string& r, const std::string& h,
                         std::string& parameters) {
  parameters += fmt::format(", float[32] \"{0}.m\", float[32, 96] \"{0}.up\", float[96, 32] \"{0}.down\"", layer);
  return fmt::format(R"(  "{0}.y" = RMSNormalization <axis = -1> ({1}, "{0}.m")
  "{0}.u" = MatMul ("{0}.y", "{0}.up")
  "{0}.g" = Relu ("{0}.u")
  "{0}.d" = MatMul ("{0}.g", "{0}.down")
  {2} = Add ({1}, "{0}.d")
)",
                     layer, r, h);
}

constexpr std::string_view kHeader = "<ir_version: 11, opset_import: [\"\" : 24]>\n";

}  // namespace

std::string tied_decoder(int layers) {
  std::string parameters = "float[96, 32] embedding, float[32, 32] positions",
              nodes = "  h0 = Gather (embedding, ids)\n";
  nodes += "  length = Shape <start = 1, end = 2> (ids)\n  number = Squeeze (length)\n";
  nodes += "  places = Range (zero, number, one)\n  table = Gather (positions, places)\n";
  for (int i = 0; i < layers; ++i) {
    nodes += fmt::format("  p{0} = Add (h{0}, table)\n", i);
    nodes += attention(fmt::format("l{}", i), fmt::format("p{}", i), "", fmt::format("r{}", i), parameters);
    nodes += feed_forward(fmt::format("l{}", i), fmt::format("r{}", i), fmt::format("h{}", i + 1), parameters);
  }
  return fmt::format(
      "{}tied (int64[batch, s] ids) => (float[batch, s, 96] logits) <{}, int64 zero = {{0}}, int64 one = {{1}}> {{\n"
      "{}  turned = Transpose <perm = [1, 0]> (embedding)\n  logits = MatMul (h{}, turned)\n}}\n",
      kHeader, parameters, nodes, layers);
}

std::string encoder_decoder(int encoder_layers, int decoder_layers) {
  std::string parameters = "float[96, 32] embedding, float[32, 96] head";
  std::string nodes = "  e0 = Gather (embedding, ids)\n  d0 = Gather (embedding, target)\n";
  for (int i = 0; i < encoder_layers; ++i) {
    nodes += attention(fmt::format("e.{}", i), fmt::format("e{}", i), "", fmt::format("er{}", i), parameters);
    nodes += feed_forward(fmt::format("e.{}", i), fmt::format("er{}", i), fmt::format("e{}", i + 1), parameters);
  }
  for (int i = 0; i < decoder_layers; ++i) {
    nodes += attention(fmt::format("s.{}", i), fmt::format("d{}", i), "", fmt::format("ds{}", i), parameters);
    nodes += attention(fmt::format("c.{}", i), fmt::format("ds{}", i), fmt::format("e{}", encoder_layers),
                       fmt::format("dr{}", i), parameters);
    nodes += feed_forward(fmt::format("d.{}", i), fmt::format("dr{}", i), fmt::format("d{}", i + 1), parameters);
  }
  return fmt::format(
      "{}translate (int64[batch, s] ids, int64[batch, s] target) => (float[batch, s, 96] logits) <{}> {{\n"
      "{}  logits = MatMul (d{}, head)\n}}\n",
      kHeader, parameters, nodes, decoder_layers);
}

std::string u_net() {
  return std::string(kHeader) + R"(net (float[batch, 3, 32, 32] image) => (float[batch, 4, 32, 32] y) <
  float[8, 3, 3, 3] a, float[16, 8, 3, 3] b, float[32, 16, 3, 3] c, float[32, 32, 3, 3] d, float[16, 48, 3, 3] e,
  float[8, 24, 3, 3] f, float[4, 8, 3, 3] g, float[4] scales = {1, 1, 2, 2}> {
  a1 = Conv <pads = [1, 1, 1, 1]> (image, a)
  a2 = Relu (a1)
  a3 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a2)
  b1 = Conv <pads = [1, 1, 1, 1]> (a3, b)
  b2 = Relu (b1)
  b3 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b2)
  c1 = Conv <pads = [1, 1, 1, 1]> (b3, c)
  c2 = Relu (c1)
  d1 = Conv <pads = [1, 1, 1, 1]> (c2, d)
  d2 = Relu (d1)
  d3 = Resize <mode = "nearest"> (d2, , scales)
  e0 = Concat <axis = 1> (b2, d3)
  e1 = Conv <pads = [1, 1, 1, 1]> (e0, e)
  e2 = Relu (e1)
  e3 = Resize <mode = "nearest"> (e2, , scales)
  f0 = Concat <axis = 1> (a2, e3)
  f1 = Conv <pads = [1, 1, 1, 1]> (f0, f)
  f2 = Relu (f1)
  y = Conv <pads = [1, 1, 1, 1]> (f2, g)
}
)";
}

}  // namespace tessera::stages::test
