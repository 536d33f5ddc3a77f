// Continues a text with a byte-level language model on the ranks of a mesh, as `tessera generate --text` does:
//   continue_text MODEL MESH PROMPT BYTES
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tessera/generation.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: continue_text MODEL MESH PROMPT BYTES\n";
    return 2;
  }
  try {
    const std::string prompt = argv[3];
    const int64_t bytes = std::atoll(argv[4]);
    std::vector<int64_t> ids;
    for (char byte : prompt) ids.push_back(static_cast<unsigned char>(byte));
    const auto model = tessera::Model::load(argv[1]);
    const auto capacity = static_cast<int64_t>(ids.size()) + bytes;
    tessera::Generator generator(model, tessera::Mesh::parse(argv[2]), {}, {.capacity = capacity});
    std::cout << prompt;
    generator.generate({ids}, {.max_new = bytes},
                       [](size_t, int64_t token) { std::cout << static_cast<char>(token) << std::flush; });
    std::cout << "\n";
  } catch (const tessera::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.kind());
  }
}
