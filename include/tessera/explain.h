#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tensors.h"

namespace tessera {
inline namespace v1 {

/// Communication of one step of a program, in order of first use.
struct CollectiveSummary {
  std::string kind;               ///< "all_reduce", "all_gather", "reduce_scatter", "all_to_all", …
  std::vector<std::string> axes;  ///< the group: ranks that differ only along these
  int64_t count = 0;              ///< operations of a run; in a loop, times its trip count if that is known
  int64_t starts = 0;             ///< operations that start alone, and buckets
  int64_t bytes = 0;  ///< that rank 0 receives, all operations together; at other places, as if it were there
};

/// A layout change that the compiler inserted.
struct ReshardSummary {
  std::string tensor;              ///< of the model
  std::string consumer;            ///< the node or output that needs it
  std::string from, to;            ///< shardings, as annotations are written
  std::vector<std::string> steps;  ///< "AllGather tp"; a Slice moves nothing
  int64_t bytes = 0;               ///< that rank 0 receives
  std::string reason;              ///< why the consumer needs a split tensor whole; "" if it does not
  double seconds = 0;              ///< in an Explanation, on the machine by whose times choices were made; 0: none
};

/// What became of all-gathers and reduce-scatters that could go around a ring beside their products
/// (docs/overlap.md). Those that are alike (as in the blocks of a model) are one entry.
struct RingSummary {
  std::string collective;  ///< "AllGather over tp of 'h.0.ln' and 7 others"
  int64_t count = 1;
  double bytes = 0;  ///< of the tensor that is gathered or scattered, each
  bool taken = false;
  std::string why;  ///< the form, and what the step takes; or why it stays as it is
};

struct ProgramSummary {
  std::vector<CollectiveSummary> collectives;
  std::vector<ReshardSummary> reshards;
  std::vector<std::string> notes;     ///< assumptions and implied settings
  std::vector<std::string> warnings;  ///< what may differ from the caller's intention
  std::vector<RingSummary> rings;     ///< in the order of the program; none for a program that was read
  SymbolSizes shapes;                 ///< sizes that the bytes are for
  /// The sizes that the program assumes to be equal: "total = past + sequence (Add 'masked')". A session compiles a
  /// model again if one of them is 1 in a broadcast and the other is not; a written program supports such sizes only if
  /// it was made from the model with_sizes() of them.
  std::vector<std::string> equal_sizes;
};

/// Why a tensor of the model has its layout.
struct Explanation {
  struct Axis {
    int dim = 0;       ///< of the tensor
    std::string part;  ///< the part of the dimension that it splits: "6" of 6·32
    std::string axis;
    std::string by;  ///< an annotation, a preset, or the operator that passed the axis on, and from where
    int round = 0;   ///< of propagation; 0: annotated
  };
  struct Lost {
    int dim = 0;
    std::string axis, reason;
  };
  /// A place where the tensor occurs: its producer, then each consumer.
  struct Place {
    std::string where;   ///< "stored", "produced by MatMul 'q'", "used by Add 'r'", "output"
    std::string layout;  ///< the sharding there, partial axes included
    std::vector<Axis> axes;
    std::vector<Lost> lost;
  };
  /// A way to compute what makes the tensor, with all other nodes as they are.
  struct Alternative {
    std::string layout;                 ///< of the tensor as made, partial axes included
    std::vector<std::string> operands;  ///< their layouts; "" where there is none
    bool chosen = false;
    /// Of bringing operands and results into the layouts that nodes need, on a machine also of computing: seconds
    /// there, else the bytes that a rank receives. What a rank holds adds a thousandth, to break ties.
    double price = 0;
    bool disobeys = false;  ///< an annotation, which counts before the price
  };
  TensorInfo tensor;           ///< the stack, if the tensor is a parameter that rewriting has stacked with others
  std::optional<int64_t> row;  ///< of the stack
  std::vector<Place> places;
  std::vector<ReshardSummary> reshards;   ///< of this tensor
  bool in_seconds = false;                ///< prices, since choices were made by a machine's times
  std::vector<Alternative> alternatives;  ///< the chosen one first, then by price; none for what no node makes
  /// Of Program::explanations(): the parameter, or other state, that the graph's nodes read last before they make the
  /// tensor, so that it belongs to the same block of the model; itself if it is one, "" if none was read.
  std::string parameter;
};

/// A parameter or other state of a program.
struct StateInfo {
  TensorInfo tensor;                 ///< whole
  bool changes = false;              ///< from run to run; see Model::with_states
  int64_t bytes = 0;                 ///< of the largest shard that a rank stores
  std::string storage;               ///< the layout between runs, as annotations are written
  std::vector<std::string> compute;  ///< the layouts that its uses need, in order of first use
  /// If the program holds it as several tensors with layouts of their own: these, and the index of the first element of
  /// each in the whole one. `bytes` is their sum, and `storage` and `compute` are empty.
  std::vector<StateInfo> pieces;
  std::vector<int64_t> begin;  ///< of a piece
};

/// What one rank holds and does in a step.
struct RankFigures {
  int64_t peak_bytes = 0;       ///< at its peak, weights included
  int64_t parameter_bytes = 0;  ///< of the weights, and all other states, that it holds
  /// At the peak, of results that the first output (a training step's loss) depends on, recomputed ones included.
  int64_t activation_bytes = 0;
  int64_t gradient_bytes = 0;  ///< at the peak, of all other results
  int64_t copy_bytes = 0;      ///< of states, to write them from (RunSettings::checkpoints); a part of the peak
  int64_t flops = 0;           ///< of one step
};

/// What a rank holds during one operation of a run, in bytes.
struct MemoryMoment {
  std::string operation;                   ///< "MatMul 'h.0'", "wait for AllReduce 'h.0'"
  int64_t states = 0;                      ///< parameters and all others
  int64_t activations = 0, gradients = 0;  ///< as RankFigures counts them
  int64_t buffers = 0;                     ///< inputs, scratch memory, packed forms and second buffers of states
};

}  // namespace v1
}  // namespace tessera
