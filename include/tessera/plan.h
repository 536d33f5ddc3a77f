#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensors.h"

namespace tessera {
inline namespace v1 {

/// How to split a model over a mesh. The first matching annotation wins; all annotations override presets.
struct Plan {
  /// "dp+megatron:x": presets joined by '+', each on its usual axis or on the one after the colon. Empty: those that
  /// the axes' names imply, unless there are annotations. "none": no presets, whatever the axes are called.
  std::string presets;

  struct Annotation {
    /// "NAME=[-, tp]": one entry per dimension. NAME may contain '*'. An entry "..." stands for any number of whole
    /// dimensions; tensors with fewer dimensions than the other entries are not affected. See tessera run --help.
    std::string text;
    std::string by = "annotation";  ///< its origin, for explain and messages
    /// If it cannot be followed exactly: true approximates it, with a warning; false is a user error.
    bool optional = false;
  };
  std::vector<Annotation> annotations;
  /// "NAME=pp:1": the nodes of that name, that compute a tensor of that name, or that come from a module of that name
  /// (as recorded by PyTorch's exporter), run only on the ranks at that index of the axis ("pp:1,dp:0": of several
  /// axes), and their weights are stored only there; NAME may contain '*'. The first match wins. Their tensors are
  /// split over other axes as usual.
  std::vector<Annotation> places;
  /// Initializers that change from run to run, as Model::with_states takes them: "*=next.*".
  std::vector<std::string> states;
  /// "NAME=[dp, ...]": how parameters and other states are stored between runs, independently of the layouts in which
  /// they are used. Written like annotations; the first match wins. States that none names are stored in the layouts of
  /// their uses.
  std::vector<Annotation> storage;
  /// States and parameters ('*' matches any characters) that stay gathered from the first use in a run to the last,
  /// instead of being gathered for each use: less communication for more memory.
  std::vector<std::string> keep_gathered;
  /// Which results of a training step's forward pass the backward pass recomputes, instead of holding them:
  ///   "" or "none"     none;
  ///   "selective"      all except the results of products with parameters, convolutions, attention and communication;
  ///   "full"           all except the tensors between blocks, such as the residual stream of a transformer;
  ///   "auto"           the least work that fits into CompileOptions::memory_limit; "auto:2e9" frees as many bytes;
  ///   "h.*.gelu,…"     results of these names; '*' matches any characters.
  std::string recompute;
  /// Whether keys and values of attention with split queries go around a ring of ranks in blocks instead of being
  /// gathered: "" or "auto" (where that takes less time on the topology's links), "always" or "never".
  std::string ring_attention;
  /// Whether collectives go around rings in blocks while products that read or make their data compute
  /// (docs/overlap.md): "" or "auto" (where a step is predicted to get shorter on CompileOptions::machine), "always" or
  /// "off".
  std::string overlap;
  /// In which type ranks add up what each of them has computed of a product, a convolution or a sum of 16-bit operands:
  /// "" or "float32" (rounded once, after the sum), or "operands": in that of the operands. Half as many bytes move
  /// then, and each rank rounds its part. Gradients of weights are float32 in any case.
  std::string partial_sums;
  /// Small collectives of one kind and group start as one, up to this many bytes together; 0: each starts alone. By
  /// default it follows from the latency and the bandwidth of the topology's links, or is 256 KiB without a topology.
  std::optional<int64_t> bucket_bytes;
  /// The parts of a batch: for Model::in_micro_batches() and, if Training does not say how many, for `tessera train`.
  /// compile() and Session take a model that has its parts already. 0: one, or as Training says.
  int micro_batches = 0;
  /// The schedule by which stages on the axis `pp` compute micro-batches (docs/pipelines.md): one of
  /// pipeline_schedules(), "auto", or the path of a table's CSV file. Empty: by default.
  std::string pipeline;
  /// How the model is cut into stages: "" or "auto" (so that the slowest stage is as fast as possible), or the number
  /// of blocks in each stage, "7,9,9,7".
  std::string stages;
  /// A layout change in which a rank receives more bytes than this, at the sizes in `shapes`, is a user error that
  /// names the tensor, its consumer, both layouts, the steps and the bytes. By default, there is no limit.
  std::optional<int64_t> max_reshard_bytes;

  /// Sizes for cost estimates; correctness does not depend on them.
  SymbolSizes shapes;
  /// The type in which a float32 model computes: float32 (the default), bfloat16 or float16. Its inputs and outputs
  /// stay float32.
  std::optional<DType> dtype;
  /// "dp=2,tp=4": the mesh to use if the caller names none; empty: none. A plan in a model's file may leave sizes open
  /// ("tp=?"), which the caller must then give.
  std::string mesh;

  /// Reads {"mesh": "tp=2", "presets": "megatron", "annotations": ["w=[-,tp]"], "places": ["h.1.*=pp:1"],
  /// "states": ["*=next.*"], "store": ["*=[dp,...]"], "keep_gathered": ["head*"], "shapes": {"batch": 8}, "recompute":
  /// "full", "ring_attention": "always", "overlap": "off", "partial_sums": "operands", "bucket_bytes": 65536,
  /// "micro_batches": 4, "pipeline": "1f1b", "stages": "7,9,9,7", "max_reshard_bytes": 1048576, "dtype": "bfloat16"},
  /// each key optional. Throws a user error naming `source` for anything else.
  static Plan from_json(std::string_view text, std::string_view source = "plan");
  std::string to_json() const;
  /// The dtype of these names: "float32" or "fp32", "bfloat16" or "bf16", "float16" or "fp16". Throws a user error
  /// naming `source` for any other name, also for types in which models do not compute.
  static DType dtype_named(std::string_view name, std::string_view source);
  /// This plan, completed by a weaker one: its annotations and places follow those of this plan, which overrides all
  /// else. Throws a user error if this plan's mesh does not match the weaker plan's.
  Plan over(const Plan& weaker) const;
};

}  // namespace v1
}  // namespace tessera
