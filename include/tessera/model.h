#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/plan.h"
#include "tessera/tensors.h"

namespace tessera {
inline namespace v1 {

/// A run of alike subgraphs of a model, such as a transformer's layers: each takes results of the one before it, and
/// has parameters of its own, of the same types.
struct ModelBlocks {
  int64_t count = 0;  ///< 0: no two blocks follow each other
  int64_t nodes = 0;  ///< of one block, as the model's file has them
  /// For each parameter, input and result that each block has of its own: its names, by block.
  std::vector<std::vector<std::string>> names;
};

/// An ONNX model (IR ≤ 14, opsets 1 to 28). Large weights are mapped, not read: the file must not be changed in place
/// while the model lives. Immutable; copies share.
class Model {
 public:
  /// Reads protobuf, or ONNX's text syntax if the name ends with ".onnxtxt". Throws a user error if the file is
  /// missing, damaged or not supported.
  static Model load(const std::filesystem::path& path);
  /// The same for a protobuf in memory, which is copied. Files with data of its tensors are looked for in `folder`.
  static Model parse(std::string_view bytes, const std::filesystem::path& folder = {});

  struct Impl;
  /// An empty model, whose functions all throw a user error.
  Model() = default;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  const std::filesystem::path& path() const;
  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  /// Names of the symbolic dimensions of the inputs.
  std::vector<std::string> symbols() const;
  /// `sizes` completed by defaults at which the model runs: 2 for symbols named like a batch and 16 for others, unless
  /// its operators require other sizes (a total is past + sequence; an image must be as large as windows need). `note`,
  /// if given, receives a line that names the defaults and, if no sizes were found, why the model does not run at
  /// these; "" if nothing was completed. Throws a user error for a symbol that the model does not have.
  SymbolSizes complete(const SymbolSizes& sizes, std::string* note = nullptr) const;

  /// This model for these sizes only: its symbolic dimensions of those names become numbers. Throws as complete() does.
  Model with_sizes(const SymbolSizes& sizes) const;

  /// This model with these tensors as outputs, in that order: outputs of the model, or any other results of its nodes.
  /// Nodes that none of them needs are not computed. Throws a user error for a name that no node's result has.
  Model with_outputs(const std::vector<std::string>& names) const;

  /// The run of alike blocks that has the most nodes. It may begin anywhere in what a person calls a layer, and leaves
  /// out layers that differ from their neighbours: often the first and the last one.
  ModelBlocks blocks() const;
  /// This model with the first `count` of its blocks, for a look at a deep model that costs less: everything that a
  /// step needs is linear in the number of blocks, once there are a few. Names stay. Throws a user error unless `count`
  /// is from 1 to blocks().count.
  Model with_blocks(int64_t count) const;

  /// The plan that the file carries, if write_annotated wrote it; else an empty one. To follow it:
  /// compile(model, mesh, plan.over(model.plan())).
  Plan plan() const;
  /// Writes the model with a plan in its metadata, to be split where it is loaded. The plan's mesh may leave sizes
  /// open, as "dp=2,tp=?". Each annotation is also written into the metadata_props of the values that it names, as
  /// "tessera.annotation". Throws a user error for a plan that cannot be followed, or a path that cannot be written.
  void write_annotated(const std::filesystem::path& path, const Plan& plan) const;

  /// The device configurations of ONNX's multi-device annotations (IR version 11) in the file. See docs/annotations.md.
  std::vector<std::string> configurations() const;
  /// This model, laid out by its annotations for a configuration. Throws a user error that names the first fault in
  /// them.
  struct ConfiguredModel configured(const std::string& configuration) const;
  /// The same, but `before` overrides annotations. Tensors that its annotations, states and stored layouts name are not
  /// stacked with others.
  struct ConfiguredModel configured(const std::string& configuration, const Plan& before) const;
  /// This model with the plan's shardings over the mesh as device annotations for a configuration, which replace
  /// earlier ones: the layouts of the operands and results of each node whose results keep their names in compilation.
  /// Device i is rank i. Throws a user error for a plan that cannot be followed.
  Model annotated(const Mesh& mesh, const Plan& plan, const std::string& configuration) const;
  /// This model with the layouts that follow from its annotations for a configuration as further annotations, so that
  /// every operand and result that holds data has one. Throws as configured() and compile() do.
  Model completed(const std::string& configuration) const;
  /// Writes the model; its larger weights go into a file beside it. Throws a user error for a path that cannot be
  /// written.
  void write(const std::filesystem::path& path) const;

  /// This model with states that change from run to run. "w=next.w": the initializer w takes the value of the output
  /// next.w after each run, and next.w is an output no longer. "*=next.*" pairs all initializers with outputs of such
  /// names, '*' being the same text in both; those without a partner stay as they are. "w*", without "=": another
  /// program that shares the states changes these (SessionOptions::share_states). Throws a user error for a pattern
  /// that pairs nothing, and for a pair whose types differ.
  Model with_states(const std::vector<std::string>& patterns) const;

  /// This model with its batch cut into `plan.micro_batches` equal parts that go through it one behind the other, as
  /// stages of a pipeline compute them (docs/pipelines.md); the plan becomes one for the model that is returned, which
  /// has its parts. The batch is the first extent of the first input that has one. Inputs whose first extent is the
  /// same are cut, others belong to every part. Part n of p has the samples n, n + p, n + 2p, …; rows of outputs are in
  /// the batch's order. A batch that is a number in the file is that of one part. What the model computes from several
  /// samples, such as statistics of a batch, it computes from those of one part. Throws a user error if the batch
  /// cannot be cut, if an output's first extent is not a multiple of it, and if states change or random numbers are
  /// drawn. `note`, if given, receives a line about the first node that computes one result from several samples, as
  /// far as operators' rules say; else "".
  Model in_micro_batches(Plan& plan, std::string* note = nullptr) const;

  /// This model with these inputs as constants; they are inputs no longer. Throws a user error for a name that no input
  /// has, and for another dtype than the input's.
  Model with_values(const Tensors& values) const;
  /// Prepares a model for compile() whose shapes depend on more than its symbols (Inspection says on what): inputs
  /// whose elements decide shapes become constants with the values in `inputs`, as by with_values(), and symbols that
  /// decide how many tensors a sequence has become numbers, as by with_sizes(). `sizes` may leave symbols out, as for
  /// complete(); a `note`, if given, receives a line that names those that became numbers. Returns the model itself if
  /// it needs neither. Throws a user error for such an input that `inputs` lacks, and if runs_in_parts(). A Session of
  /// the model does all this by itself, for each run.
  Model for_program(const SymbolSizes& sizes = {}, const Tensors& inputs = {}, std::string* note = nullptr) const;
  /// Whether the model does not fit one program, so that only a Session of the model runs it: shapes depend on computed
  /// data, or two symbols that a branch or loop assumes to be equal differ for such inputs. Without inputs, its symbols
  /// have `sizes`, completed as by complete().
  bool runs_in_parts(const SymbolSizes& sizes = {}, const Tensors& inputs = {}) const;

  const Impl& impl() const;
  const std::shared_ptr<const Impl>& shared_impl() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// A model and the plan of its annotations for a device configuration: compile(model, Mesh::parse(plan.mesh), plan).
struct ConfiguredModel {
  /// The model without annotations. If a node needs an operand in another layout than other nodes, or a result at
  /// another place than it runs, an Identity node is inserted.
  Model model;
  Plan plan;                          ///< mesh, annotations and places
  std::vector<int64_t> devices;       ///< of the configuration, by rank
  std::vector<std::string> warnings;  ///< where annotations are not followed exactly
};

}  // namespace v1
}  // namespace tessera
