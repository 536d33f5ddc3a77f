#include "conformance/node_case.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/onnx/import.h"
#include "tessera/onnx/tensor_proto.h"

namespace tessera::conformance {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Tensor> read_ports(const fs::path& folder, std::string_view prefix,
                                         const std::vector<Value*>& ports) {
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < ports.size(); ++i) {
    fs::path file = folder / fmt::format("{}_{}.pb", prefix, i);
    if (ports[i]->dtype() == DType::undefined)
      fail("import", "'{}' is a sequence, an optional or a map; only tensors are supported", ports[i]->name);
    Tensor tensor = read_tensor_file(file).tensor;
    // numpy has no bfloat16: ONNX wrote its bits.
    if (tensor.dtype == DType::uint16 && ports[i]->dtype() == DType::bfloat16) tensor.dtype = DType::bfloat16;
    tensors[ports[i]->name] = std::move(tensor);
  }
  return tensors;
}

template <typename T>
double real(T element) {
  if constexpr (std::is_class_v<T>)
    return static_cast<float>(element);
  else
    return static_cast<double>(element);
}

// The expected 16-bit floats were rounded after every step of the reference; they are right to one step of their type.
template <typename T>
constexpr double least_relative() {
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-7;
  if constexpr (std::is_same_v<T, Float16>) return 0x1p-10;
  return 0;
}

template <typename T>
std::string float_mismatch(const Tensor& expected, const Tensor& actual, const ElementTolerance& tolerance) {
  auto want = expected.as<T>(), got = actual.as<T>();
  const double relative = std::max(tolerance.relative, least_relative<T>());
  for (size_t i = 0; i < want.size(); ++i) {
    double a = real(want[i]), b = real(got[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::abs(a - b) <= tolerance.absolute + relative * std::abs(a) && std::isfinite(a)) continue;
    return fmt::format("element {} of {}: expected {}, got {}", i, want.size(), a, b);
  }
  return "";
}

bool is_tensor_of_numbers(const Value* value) {
  return value->dtype() != DType::undefined && value->dtype() != DType::string;
}

bool is_plain_node(const Node& node) {
  if (node.domain == "ai.onnx.preview.training" || node.get_int("training_mode", 0) != 0) return false;
  if (node.op_type == "Dropout" && node.input(2)) return false;
  if (node.op_type == "ReverseSequence") return true;
  for (const char* word : {"Sequence", "Optional", "String"})
    if (node.op_type.find(word) != std::string::npos) return false;
  return true;
}

}  // namespace

bool is_plain(const fs::path& folder) {
  try {
    OnnxModel model = import_model(folder / "model.onnx");
    const Graph& graph = *model.graph;
    return std::all_of(graph.inputs.begin(), graph.inputs.end(), is_tensor_of_numbers) &&
           std::all_of(graph.outputs.begin(), graph.outputs.end(), is_tensor_of_numbers) &&
           std::all_of(graph.nodes().begin(), graph.nodes().end(),
                       [](const auto& node) { return is_plain_node(*node); });
  } catch (const Error&) {
    return true;
  }
}

NodeCase read_case(const fs::path& folder) {
  NodeCase read;
  read.name = folder.filename().string();
  read.model = import_model(folder / "model.onnx");
  read.inputs = read_ports(folder / "test_data_set_0", "input", read.model.graph->inputs);
  read.outputs = read_ports(folder / "test_data_set_0", "output", read.model.graph->outputs);
  if (std::ifstream file(folder / "tolerance.json"); file) {
    auto json = nlohmann::json::parse(file);
    read.tolerance = {json.at("rtol").get<double>(), json.at("atol").get<double>()};
  }
  return read;
}

std::string mismatch(const std::string& name, const Tensor& expected, const Tensor& actual,
                     const ElementTolerance& tolerance) {
  std::string problem;
  if (expected.dtype != actual.dtype) {
    problem = fmt::format("expected {}, got {}", name_of(expected.dtype), name_of(actual.dtype));
  } else if (expected.dims != actual.dims) {
    problem =
        fmt::format("expected the shape [{}], got [{}]", fmt::join(expected.dims, ", "), fmt::join(actual.dims, ", "));
  } else if (expected.dtype == DType::float32) {
    problem = float_mismatch<float>(expected, actual, tolerance);
  } else if (expected.dtype == DType::float64) {
    problem = float_mismatch<double>(expected, actual, tolerance);
  } else if (expected.dtype == DType::float16) {
    problem = float_mismatch<Float16>(expected, actual, tolerance);
  } else if (expected.dtype == DType::bfloat16) {
    problem = float_mismatch<BFloat16>(expected, actual, tolerance);
  } else if (expected.bytes != actual.bytes) {
    problem = fmt::format("{} bytes were expected, {} came", expected.bytes, actual.bytes);
  } else if (!std::equal(expected.data, expected.data + expected.bytes, actual.data)) {
    auto at = std::mismatch(expected.data, expected.data + expected.bytes, actual.data).first - expected.data;
    problem = fmt::format("byte {} of {} differs", at, expected.bytes);
  }
  return problem.empty() ? "" : fmt::format("'{}': {}", name, problem);
}

}  // namespace tessera::conformance
