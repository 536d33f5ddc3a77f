#pragma once

#include <optional>
#include <string_view>

#include "tessera/kernels/cpu/product/weight_layout.h"

namespace tessera::kernels {

/// A matrix [rows, columns] by whose transpose a product multiplies.
struct TurnedMatrix {
  int64_t rows = 0, columns = 0;
  std::optional<WeightLayout> layout = {};  ///< of the packed form; nullopt: as it is
  size_t bytes = 0;                         ///< of that form

  int64_t count() const { return rows * columns; }
};

/// The matrices of one direction of an RNN, GRU or LSTM of h units: of the input, [gates·h, i], of the state,
/// [first gates·h, h], and of a GRU that resets its state before the last gate's product, that gate's own [h, h].
struct RecurrenceForm {
  int64_t directions = 1;
  TurnedMatrix input, state, last;  ///< `last` may have no elements

  size_t state_at() const { return input.bytes; }
  size_t last_at() const { return input.bytes + state.bytes; }
  size_t direction_bytes() const { return last_at() + last.bytes; }
};

/// The form of the weights, operand 1 [d, gates·h, i] of type `weight`, and of the recurrence, operand 2, of type
/// `recurrence`. `node` has the attributes of `op_type`. Nullopt for other operators, and where a type has none.
std::optional<RecurrenceForm> recurrence_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                              DType recurrence);

/// KernelEntry::pack of the same operators: the weights are packed with the matrices of the state, if these are known,
/// too.
std::optional<PackedLayout> pack_recurrence(const Node& node, const TensorDesc& weight);

}  // namespace tessera::kernels
