// Writes batches of padded paragraphs: padded_batches TEXT STEPS BATCH SEQUENCE OUT.npz
// A row is a paragraph, cut at SEQUENCE bytes or filled up with the token 256. The labels are the bytes that follow,
// and -100, which the loss leaves out, where none does. Arrays: input_ids and labels, [STEPS, BATCH, SEQUENCE] int64.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace {

constexpr int64_t kPadding = 256, kIgnored = -100;

std::vector<std::string> paragraphs_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!(text << file.rdbuf())) throw tessera::Error(tessera::ErrorKind::user, "text", "'" + path + "' cannot be read");
  std::vector<std::string> paragraphs(1);
  for (std::string line; std::getline(text, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (!line.empty())
      paragraphs.back() += line + "\n";
    else if (!paragraphs.back().empty())
      paragraphs.emplace_back();
  }
  if (paragraphs.back().empty()) paragraphs.pop_back();
  if (paragraphs.empty()) throw tessera::Error(tessera::ErrorKind::user, "text", "'" + path + "' is empty");
  return paragraphs;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    std::fprintf(stderr, "usage: padded_batches TEXT STEPS BATCH SEQUENCE OUT.npz\n");
    return 2;
  }
  const std::vector<std::string> paragraphs = paragraphs_of(argv[1]);
  const int64_t steps = std::atoll(argv[2]), batch = std::atoll(argv[3]), sequence = std::atoll(argv[4]);
  std::vector<int64_t> ids, labels;
  for (int64_t row = 0; row < steps * batch; ++row) {
    const std::string& paragraph = paragraphs[static_cast<size_t>(row) % paragraphs.size()];
    const auto token = [&](int64_t at, int64_t none) {
      return at < static_cast<int64_t>(paragraph.size())
                 ? static_cast<unsigned char>(paragraph[static_cast<size_t>(at)])
                 : none;
    };
    for (int64_t i = 0; i < sequence; ++i) {
      ids.push_back(token(i, kPadding));
      labels.push_back(token(i + 1, kIgnored));
    }
  }
  const tessera::Dims dims = {steps, batch, sequence};
  tessera::write_tensors(argv[5], {{"input_ids", tessera::Tensor::of(tessera::DType::int64, dims, ids)},
                                   {"labels", tessera::Tensor::of(tessera::DType::int64, dims, labels)}});
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
