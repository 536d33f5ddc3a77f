#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tessera.h"

/// Describes a model without running it, and makes inputs to try it with.
namespace tessera {
inline namespace v1 {

struct OperatorCount {
  std::string op;  ///< "MatMul", "com.microsoft.Gelu"
  int64_t count = 0;
  bool covered = true;  ///< the compiler knows the operator, and the CPU has a kernel for it
};

/// A parameter of the model, or any other tensor that the file holds and a program keeps between runs.
struct WeightInfo {
  TensorInfo tensor;
  int64_t bytes = 0;
  std::vector<std::string> used_by;  ///< types of the operators that read it, as in the file, each once
  /// The parameters of the exported model that it is, or was made of, if the file says so; patterns match these names,
  /// too.
  std::vector<std::string> sources;
};

struct Inspection {
  std::string producer;  ///< "pytorch 2.9"
  int64_t ir_version = 0;
  int64_t opset = 0;
  std::vector<TensorInfo> inputs, outputs;
  SymbolSizes sizes;  ///< the sizes that flops and bytes are for
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;
  std::vector<WeightInfo> weights;   ///< in the file's order; annotations use these names
  int64_t parameter_bytes_read = 0;  ///< by one step; of a table that only Gather uses, just the rows it takes
  /// FLOPs of one step on one device, after rewriting; a loop's body counts times its trip count if that is known.
  int64_t flops = 0;
  DType compute = DType::float32;        ///< the float type of most of these FLOPs
  int64_t moved_bytes = 0;               ///< operands and results of all operators, once each
  std::vector<OperatorCount> read;       ///< as in the file, most frequent first
  std::vector<OperatorCount> rewritten;  ///< after rewriting, as the partitioner gets them; empty if rewriting failed
  std::string rewrite_error;             ///< why it failed; "" if it did not
  /// Inputs whose elements decide shapes, or must otherwise be known before the model is compiled: axes, the shape of a
  /// Reshape.
  std::vector<std::string> value_inputs;
  /// Symbols whose sizes must be known before the model is compiled, because they decide how many tensors a sequence
  /// has: a loop fills one in as many iterations.
  std::vector<std::string> size_symbols;
  bool runs_in_parts = false;  ///< shapes depend on what the model computes
  /// The reason, if it is a branch, a loop or an operator that was found only when the model was rewritten; else empty.
  std::string why_in_parts;
  std::vector<std::string> uncovered;              ///< operators that stop the model from running here
  std::vector<std::string> device_configurations;  ///< "NAME: 4 devices", as the file declares them
  int64_t annotated_nodes = 0;                     ///< nodes for which the file has a device configuration
};

/// `sizes` may leave symbols out: see Model::complete.
Inspection inspect(const Model& model, const SymbolSizes& sizes = {});

/// The extent, at those sizes, of the dimension of the inputs that runs along the queries of the model's attention,
/// over which the preset `context` splits; 0 if there is none.
int64_t context_extent(const Model& model, const SymbolSizes& sizes);

/// The files of a written program (Program::write) in a folder, found by their names without opening them; none if
/// there is no such folder.
std::vector<std::filesystem::path> files_of_written(const std::filesystem::path& folder);

/// Whether a tensor of that name is a result of a node of the model, so that Model::with_outputs takes it.
bool makes(const Model& model, std::string_view tensor);

/// The sizes of symbols that follow from the shapes of these inputs: batch is 3 if the port "x [2*batch]" gets six
/// elements. Arrays of other names or ranks are ignored.
SymbolSizes sizes_of(const std::vector<TensorInfo>& ports, const Tensors& inputs);

/// Inputs to try a model with, the same for the same seed. Floats are ~ N(0, 1); a large tensor repeats its first
/// 16,381 elements. Bools are random. Integers that index a table are rows of it, masks are ones, other integers are 0
/// or 1. If the inputs take more than `memory_limit` bytes (0: what the machine has), throws a user error that names
/// the input that exceeds the limit.
Tensors random_inputs(const Model& model, const SymbolSizes& sizes, uint64_t seed, size_t memory_limit = 0);

struct PresetInfo {
  std::string name, axes, description;  ///< axes: the axis names that it takes by default
};

struct MachineInfo {
  std::vector<std::string> instruction_sets;  ///< those of this CPU that our kernels use
  int cores = 1;
  std::vector<PresetInfo> presets;
};

MachineInfo machine();

/// "h.*.attn_*" of "h.12.attn_3": with * for numbers that are words of their own, as those of layers. "fc1" stays.
std::string without_numbers(std::string_view text);

}  // namespace v1
}  // namespace tessera
