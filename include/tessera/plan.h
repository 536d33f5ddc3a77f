#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensors.h"

namespace tessera {
inline namespace v1 {

/// How a model is to be laid over a mesh. What stands first in `annotations` wins; presets come last.
struct Plan {
  /// "dp+megatron:x": presets joined by '+', each with an axis of its own usual name or the one after the colon. Empty:
  /// what the axes' names imply, unless there are annotations. "none": none, whatever the axes are called.
  std::string presets;

  struct Annotation {
    /// "NAME=[-, tp]": one entry per dimension. NAME may hold '*'. An entry "..." stands for any number of dimensions
    /// that stay whole; tensors with fewer dimensions than the other entries are left alone. See tessera run --help.
    std::string text;
    std::string by = "annotation";  ///< who said so, for explain and messages
    /// Where it cannot be followed, it is followed as nearly as can be, with a warning; else that is a user error.
    bool optional = false;
  };
  std::vector<Annotation> annotations;
  /// "NAME=pp:1": the nodes of that name, that make a tensor of that name, or that come from a module of that name (as
  /// PyTorch's exporter notes it), run only on the ranks at that index of the axis ("pp:1,dp:0": of several), and their
  /// weights are stored only there; NAME may hold '*'. The first that names a node wins. Their tensors are split over
  /// other axes as ever.
  std::vector<Annotation> places;
  /// Initializers that change from run to run, as Model::with_states takes them: "*=next.*".
  std::vector<std::string> states;
  /// "NAME=[dp, ...]": how parameters and other states are stored between runs, whatever layout their uses compute in.
  /// Written as annotations are; the first that names a state wins. What none names is stored as its uses want it.
  std::vector<Annotation> storage;
  /// States and parameters, '*' matching any characters, whose gathered form stays from the first use in a run to the
  /// last, instead of being gathered for each: less communication for more memory.
  std::vector<std::string> keep_gathered;
  /// Which results of a training step's forward pass the backward pass computes again, instead of holding them:
  ///   "" or "none"    none;
  ///   "selective"     all but what products with parameters, convolutions, attention and communications make;
  ///   "full"          all but what lies between blocks, as the residual stream of a transformer;
  ///   "auto"          the least work that fits into CompileOptions::memory_limit ("auto:2e9": that frees as many
  ///   bytes); "h.*.gelu,…"    results of these names; '*' matches any characters.
  std::string recompute;
  /// When keys and values of attention, whose queries are split, go around a ring of ranks in blocks instead of being
  /// gathered: "" or "auto" where that takes less time on the topology's links, "always", "never".
  std::string ring_attention;
  /// Small collectives of one kind and group start as one, up to this many bytes together; 0: each starts alone. By
  /// default it follows from the latency and the bandwidth of the topology's links, or is 256 KiB if nothing is known.
  std::optional<int64_t> bucket_bytes;
  /// A change of layout in which a rank receives more bytes than this, at the sizes that choices assume, is a user
  /// error that names the tensor, what needs it, both layouts, the steps and the bytes. By default, none is too large.
  std::optional<int64_t> max_reshard_bytes;

  /// Sizes that choices by cost assume; correctness does not depend on them.
  SymbolSizes shapes;
  /// What a float32 model computes in: float32, as if nothing is said, bfloat16 or float16. Its inputs and
  /// outputs stay float32.
  std::optional<DType> dtype;
  /// "dp=2,tp=4": the mesh to use where the caller names none; empty: none. A plan that a model carries may leave sizes
  /// open ("tp=?"): then somebody has to say them.
  std::string mesh;

  /// Reads {"mesh": "tp=2", "presets": "megatron", "annotations": ["w=[-,tp]"], "places": ["h.1.*=pp:1"],
  /// "states": ["*=next.*"], "store": ["*=[dp,...]"], "keep_gathered": ["head*"], "shapes": {"batch": 8}, "recompute":
  /// "full", "ring_attention": "always", "bucket_bytes": 65536, "max_reshard_bytes": 1048576, "dtype": "bfloat16"},
  /// each key optional. Throws a user error naming `source` for anything else.
  static Plan from_json(std::string_view text, std::string_view source = "plan");
  std::string to_json() const;
  /// What `dtype` is called wherever a person names it: "float32" or "fp32", "bfloat16" or "bf16", "float16" or "fp16".
  /// Throws a user error naming `source` for any other name, also of a type that models do not compute in.
  static DType dtype_named(std::string_view name, std::string_view source);
  /// This plan, completed by a weaker one: its annotations and places come after ours, the rest where we say nothing.
  /// Throws a user error if our mesh is not one that the weaker plan leaves open.
  Plan over(const Plan& weaker) const;
};

}  // namespace v1
}  // namespace tessera
