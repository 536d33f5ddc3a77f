// fuzz_seeds OUT FOLDER…: writes the fuzzers' seeds, from the .onnx and .npy files below the folders. OUT/model and
// OUT/run get small models, OUT/text the text of models, OUT/values arrays and notation. Large weights of models that
// are run become inputs, which leaves the graph in a size at which a fuzzer makes progress.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/import.h"

namespace {

namespace fs = std::filesystem;

constexpr size_t kLargest = 64 << 10;  // larger ones are slow and teach readers little
constexpr size_t kLargestRun = 256 << 10;
constexpr size_t kLargeWeight = 1 << 10;

std::string with_weights_for_inputs(const std::string& bytes) {
  tessera::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return bytes;
  tessera::onnx::GraphProto& graph = *model.mutable_graph();
  const google::protobuf::RepeatedPtrField<tessera::onnx::TensorProto> weights = graph.initializer();
  graph.clear_initializer();
  for (const tessera::onnx::TensorProto& weight : weights) {
    if (weight.ByteSizeLong() < kLargeWeight) {
      *graph.add_initializer() = weight;
      continue;
    }
    tessera::onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(weight.name());
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(weight.data_type());
    type.mutable_shape();
    for (const int64_t extent : weight.dims()) type.mutable_shape()->add_dim()->set_dim_value(extent);
  }
  return model.SerializeAsString();
}

class Seeds {
 public:
  explicit Seeds(fs::path out) : out_(std::move(out)) {}

  void add(const char* fuzzer, const std::string& bytes, size_t largest = kLargest) {
    if (bytes.size() > largest) return;
    fs::create_directories(out_ / fuzzer);
    std::ofstream(out_ / fuzzer / std::to_string(next_++), std::ios::binary) << bytes;
  }

  void add_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (path.extension() == ".npy") add("values", "a" + bytes);
    if (path.extension() != ".onnx") return;
    add("model", bytes);
    add("run", with_weights_for_inputs(bytes), kLargestRun);
    try {
      add("text", print_text(tessera::import_model(path)));
    } catch (const tessera::Error&) {
      // What cannot be read has no text.
    }
  }

  int count() const { return next_; }

 private:
  fs::path out_;
  int next_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: fuzz_seeds OUT FOLDER...\n";
    return 2;
  }
  Seeds seeds(argv[1]);
  for (const char* text :
       {"s[batch{dp}, -, 6{tp}*32] partial(sum:tp)", "s[?, tp, {dp,tp}?]", "s[-, tp:(2)3, 3*192{tp}]", "mdp=2,tp=4",
        "ma=1", "e32*floordiv(-@tp + 7, 2)", "eMin(512, s) - max(a, 3)", "es//2 + mod(b, 3)"})
    seeds.add("values", text);
  for (int i = 2; i < argc; ++i)
    for (const auto& entry : fs::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) seeds.add_file(entry.path());
  std::cout << seeds.count() << " seeds\n";
}
