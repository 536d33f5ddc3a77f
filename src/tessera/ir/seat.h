#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// The part of the work on a micro-batch that a node belongs to. `backward` has both kinds of gradients.
enum class Segment : uint8_t { none, forward, backward, input_gradient, weight_gradient };

/// Where a node belongs in a training step, or in a pipeline (docs/pipelines.md).
struct Seat {
  int stage = -1;        ///< of a pipeline; -1: none, the node runs on the ranks of all stages
  int micro_batch = -1;  ///< -1: none
  Segment segment = Segment::none;

  bool is_backward() const { return segment >= Segment::backward; }
  /// Whether it belongs to a cell of a pipeline's table.
  bool is_staged() const { return stage >= 0 && micro_batch >= 0 && segment != Segment::none; }
  /// The cell as tables write it: "1I2"; "" if it belongs to none.
  std::string cell() const;

  bool operator==(const Seat&) const = default;
};

}  // namespace tessera
