#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/compiler/requests.h"
#include "tessera/compiler/ring_choice.h"
#include "tessera/cost/machine_model.h"
#include "tessera/mesh/topology.h"
#include "tessera/passes/recompute.h"
#include "tessera/passes/ring_attention.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/presets/presets.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

inline constexpr std::string_view kNoPreset = "none";

/// Which collectives go around rings beside products (passes/collective_products.h).
enum class ProductRings { by_cost, always, never };

/// "auto" or "", "always", "off". Throws a user error for anything else.
ProductRings parse_product_rings(std::string_view text);

/// Whether partial sums of 16-bit operands have these operands' type: "float32" or "", "operands". Throws a user error
/// for anything else.
bool parse_narrow_sums(std::string_view text);

/// The predicted seconds of a step of a program, on the machine that the options name.
using Simulate = std::function<double(const std::shared_ptr<const spmd::Program>&)>;

struct CompileOptions {
  Mesh mesh;
  std::string presets;  ///< "dp+megatron:x"; "none"; empty: those that the axes' names imply, without annotations
  std::vector<AnnotationRequest> annotations;  ///< those of higher precedence first
  std::vector<PlaceRequest> places;            ///< those of higher precedence first
  std::optional<PipelineRequest> pipeline;     ///< nullopt: as the mesh implies
  std::vector<AnnotationRequest> storage;      ///< of states, those of higher precedence first
  std::vector<std::string> keep_gathered;      ///< states whose gathered form is kept for all uses
  spmd::Hints shapes;                          ///< symbol values for cost estimates; others get defaults
  DType compute = DType::float32;              ///< bfloat16: float32 models compute in it (rewrite/precision.h)
  std::vector<std::string> keep;        ///< values that rewriting must keep by name (because of a question about them)
  passes::Recompute recompute;          ///< results of the forward pass that the backward pass recomputes
  std::optional<int64_t> bucket_bytes;  ///< of collectives that start as one (passes/buckets.h)
  bool early_starts = true;             ///< gathers of stored parameters come forward (passes/early_starts.h)
  passes::RingAttention ring_attention = passes::RingAttention::by_cost;
  ProductRings product_rings = ProductRings::by_cost;
  bool narrow_sums = false;  ///< partial sums of 16-bit operands have these operands' type, and not float32
  Simulate simulate;         ///< for choices by the time of a step; null: none are made
  Topology topology;         ///< fits the mesh; empty: its links are unknown
  std::shared_ptr<const MachineModel> machine;  ///< by whose seconds choices are made; null: by bytes and constants
  /// The first program of a set over the same states (shared_states.h), compiled before; null: this is the first.
  /// `storage` then applies only to states that it does not have.
  const spmd::Program* sharing = nullptr;
  /// Called after each stage with its name and the text form.
  std::function<void(std::string_view stage, const std::function<std::string()>& text)> observe;
};

/// All results of a compilation.
struct Compiled {
  std::unique_ptr<OnnxModel> model;  ///< rewritten, global
  std::unique_ptr<spmd::Layout> layout;
  spmd::Propagation propagation;
  spmd::Decisions decisions;
  spmd::Storage storage;
  std::shared_ptr<const cost::Prices> prices;  ///< of the machine that was named; null: none
  std::map<const Value*, std::string> labels;  ///< labels of values (rewrite/passes.h)
  std::shared_ptr<spmd::Program> program;
  std::vector<std::string> notes;  ///< assumptions to report to the user, a line each
  std::vector<std::string> warnings;
  std::vector<RingOutcome> rings;  ///< collectives that could go around rings beside products, and what became of them
};

/// Rewrites a copy of the model, annotates, propagates, decides, partitions, and runs the passes on the program. Throws
/// user errors that name the place.
Compiled compile(const OnnxModel& model, const CompileOptions& options);

/// The same if the rewritten form of `model` is known. `options` must not annotate, place or keep anything by name, and
/// stages before propagation are not observed.
Compiled compile_rewritten(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options);

/// The symbols in the shapes of the model's inputs.
std::set<std::string> symbols_of(const OnnxModel& model);
/// Throws a user error for a size of a symbol that no input of the model has, or that is negative.
void require_symbols(const OnnxModel& model, const spmd::Hints& given);
/// The model with these numbers in place of symbols. Throws as require_symbols() does.
OnnxModel with_sizes(const OnnxModel& model, const spmd::Hints& sizes);

/// Sizes of all symbols of a model's inputs at which it runs, if such are found: the given ones, and defaults for
/// others: 2 for symbols named like a batch, else 16, changed as operators demand (spmd/layout/sizes.h). `rewritten` is
/// its rewritten graph, or null if it cannot be rewritten and demands are unknown. `notes` receives a line about the
/// defaults, and one if the model does not run at these sizes.
spmd::Hints symbol_values(const OnnxModel& model, const Graph* rewritten, const spmd::Hints& given,
                          std::vector<std::string>* notes);

}  // namespace tessera::compiler
