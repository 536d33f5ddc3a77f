// Continues a text with a byte-level language model, greedily, on the ranks of a mesh:
//   continue_text MODEL MESH PROMPT BYTES
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tessera/tessera.h"

namespace {

// The model is causal: later positions do not change a position's answer. So the text is padded to its final length
// from the start, and every step runs the plan of the first one.
std::string continue_text(tessera::Session& session, std::string text, size_t bytes) {
  const size_t length = text.size() + bytes;
  while (text.size() < length) {
    std::vector<int64_t> ids(length, 0);
    std::transform(text.begin(), text.end(), ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
    const auto shape = tessera::Dims{1, static_cast<int64_t>(length)};
    const auto outputs = session.run({{"input_ids", tessera::Tensor::of(tessera::DType::int64, shape, ids)}});
    const auto logits = outputs.at("logits").as<float>();  // [1, length, 256]
    const auto last = logits.subspan((text.size() - 1) * 256, 256);
    text += static_cast<char>(std::max_element(last.begin(), last.end()) - last.begin());
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: continue_text MODEL MESH PROMPT BYTES\n";
    return 2;
  }
  try {
    const std::string prompt = argv[3];
    if (prompt.empty()) throw tessera::Error(tessera::ErrorKind::user, "prompt", "is empty; give at least one byte");
    const auto model = tessera::Model::load(argv[1]);
    tessera::Session session(tessera::compile(model, tessera::Mesh::parse(argv[2])));
    std::cout << continue_text(session, prompt, std::strtoul(argv[4], nullptr, 10)) << "\n";
  } catch (const tessera::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.kind());
  }
}
