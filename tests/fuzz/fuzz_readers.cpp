// Damages real files and texts at random and reads them. A reader may accept or throw tessera::Error; anything else (a
// crash, a sanitizer's report, another exception, no end) is a bug. Build it with the sanitizers: `make fuzz`.
//   fuzz_readers SECONDS FOLDER...      cases from a random first number on; the folders are searched for .onnx and
//   .npy fuzz_readers --case NUMBER FOLDER...  one case again
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/io/npy.h"
#include "tessera/ir/text.h"
#include "tessera/mesh/sharding.h"
#include "tessera/onnx/import.h"

namespace {

namespace fs = std::filesystem;
using tessera::Expr;

constexpr size_t kLargestFile = 2 << 20;
constexpr const char* kLastCase = "fuzz_last_case.txt";

struct Seed {
  std::string origin;
  std::string bytes;
  std::function<void(const std::string&)> read;
};

void read_model(const std::string& bytes) {
  const tessera::OnnxModel model = tessera::import_model_bytes(bytes);
  model.graph->verify("fuzz");
  print_text(model);
}

void read_text(const std::string& text) {
  tessera::parse_text(text).graph->verify("fuzz");
}

void read_array(const std::string& bytes) {
  tessera::parse_npy(bytes, "array");
}

void read_sharding(const std::string& text) {
  const tessera::Mesh mesh = tessera::Mesh::parse("dp=2,tp=6");
  const tessera::Shape shape = {Expr::symbol("batch"), 192, 576};
  parse_sharding(text, shape, mesh, "value");
}

std::vector<Seed> collect(const std::vector<std::string>& folders) {
  std::vector<Seed> seeds;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const auto extension = entry.path().extension();
      if ((extension != ".onnx" && extension != ".npy") || entry.file_size() > kLargestFile) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(file), {}};
      const std::string path = entry.path().string();
      if (extension == ".npy") {
        seeds.push_back({path, std::move(bytes), read_array});
        continue;
      }
      try {
        seeds.push_back({path + " as text", print_text(tessera::import_model_bytes(bytes)), read_text});
      } catch (const tessera::Error&) {
        // Models without their external data, and those that tests keep because they are broken, have no text.
      }
      seeds.push_back({path, std::move(bytes), read_model});
    }
  for (const char* text : {"[batch{dp}, -, 6{tp}*32] partial(sum:tp)", "[?, tp, {dp,tp}?]", "[-, tp:(2)3, 3*192{tp}]"})
    seeds.push_back({"a sharding", text, read_sharding});
  for (const char* text : {"dp=2,tp=4", "a=1"})
    seeds.push_back({"a mesh", text, [](const std::string& mesh) { tessera::Mesh::parse(mesh); }});
  for (const char* text : {"32*floordiv(-@tp + 7, 2)", "Min(512, s) - max(a, 3)", "s//2 + mod(b, 3)"})
    seeds.push_back({"an expression", text, [](const std::string& expr) { Expr::parse(expr); }});
  return seeds;
}

// One to eight edits: bytes changed, moved, repeated, cut, or replaced by numbers that readers tend to trust.
std::string damage(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(random() % bound); };
  static const std::vector<std::string> tokens = {std::string(9, '\xff') + '\x01',
                                                  std::string(4, '\xff') + '\x07',
                                                  std::string("\x00", 1),
                                                  "-1",
                                                  "9223372036854775807",
                                                  "((((((((((((((((",
                                                  "{{",
                                                  "0"};
  for (size_t edit = 0, edits = 1 + below(8); edit < edits && !bytes.empty(); ++edit) {
    const size_t at = below(bytes.size());
    const size_t length = std::min(bytes.size() - at, 1 + below(32));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(below(bytes.size()), bytes.substr(at, length));
        break;
      case 4:
        bytes.replace(at, length, tokens[below(tokens.size())]);
        break;
      default:
        bytes.resize(edit == 0 && below(8) == 0 ? at : bytes.size());
        break;
    }
  }
  return bytes;
}

// True if the reader did what it may.
bool run_case(uint64_t number, const std::vector<Seed>& seeds) {
  std::mt19937_64 random(number);
  const Seed& seed = seeds[random() % seeds.size()];
  const std::string input = damage(seed.bytes, random);
  std::ofstream(kLastCase) << number << ": " << seed.origin << "\n";
  try {
    seed.read(input);
  } catch (const tessera::Error& error) {
    const bool invariant = error.kind() == tessera::ErrorKind::running;
    if (invariant) std::cerr << "case " << number << " (" << seed.origin << "): " << error.what() << "\n";
    return !invariant;
  } catch (const std::exception& error) {
    std::cerr << "case " << number << " (" << seed.origin << "): not a tessera::Error: " << error.what() << "\n";
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool one = args.size() >= 3 && args[0] == "--case";
  if (args.size() < 2) {
    std::cerr << "usage: fuzz_readers SECONDS FOLDER... | fuzz_readers --case NUMBER FOLDER...\n";
    return 2;
  }
  const std::vector<Seed> seeds = collect({args.begin() + (one ? 2 : 1), args.end()});
  if (one) return run_case(std::stoull(args[1]), seeds) ? 0 : 1;

  const uint64_t first = std::random_device{}();
  std::cout << seeds.size() << " seeds, first case " << first << "; after a crash, the case is in " << kLastCase
            << "\n";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(args[0]));
  uint64_t cases = 0, bad = 0;
  for (; std::chrono::steady_clock::now() < end; ++cases)
    if (!run_case(first + cases, seeds)) ++bad;
  std::cout << cases << " cases, " << bad << " bad\n";
  return bad == 0 ? 0 : 1;
}
