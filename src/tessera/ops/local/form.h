#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"

/// Local forms of operators that combine all elements along a dimension, where that is split over ranks.
namespace tessera::ops {

/// Builds such a form: nodes on this rank's part, in float32 for 16-bit data, and what ranks exchange.
class SplitForm : public NodeBuilder {
 public:
  /// `dims`: the dimensions of operand 0 that are combined.
  SplitForm(Localizer& localizer, std::vector<size_t> dims);

  Localizer& local;
  const std::vector<size_t> dims;
  std::vector<int> factors;  ///< those along `dims` that ranks combine

  /// Whether one of them is split; else the local form needs no exchange.
  bool is_split() const;
  /// float32 for floats of 16 bits, else the type itself.
  static DType wide(DType dtype);
  Value* widened(Value* value) { return cast(value, wide(value->dtype())); }
  /// The number of elements that are combined, over all ranks, as a scalar of that type; those of each group if they
  /// are combined in groups.
  Value* count(DType dtype, int64_t groups = 1);
  /// A Reduce* of this rank's part over `dims`, then over the ranks.
  Value* reduced(std::string_view op_type, Value* value, Reduction reduction, std::string_view name, bool keep = true);
  /// The axes of a Reduce* over `dims`.
  Value* axes();
};

/// The attribute `axis` among operand 0's dimensions.
size_t axis_along(const Node& node, int64_t otherwise);

// split_normalization.cpp
std::vector<Value*> localize_layer_normalization(Localizer& local);
std::vector<Value*> localize_channel_normalization(Localizer& local);
std::vector<Value*> localize_mean_variance(Localizer& local);
std::vector<Value*> localize_lp_normalization(Localizer& local);
std::vector<Value*> localize_softmax(Localizer& local);

// split_reduction.cpp
std::vector<Value*> localize_root_or_log(Localizer& local);
std::vector<Value*> localize_log_sum_exp(Localizer& local);
std::vector<Value*> localize_product(Localizer& local);
std::vector<Value*> localize_dynamic_quantization(Localizer& local);

// split_choice.cpp
std::vector<Value*> localize_arg(Localizer& local);
std::vector<Value*> localize_hardmax(Localizer& local);
std::vector<Value*> localize_top_k(Localizer& local);

// split_scan.cpp
std::vector<Value*> localize_cumulative(Localizer& local);

// split_recurrent.cpp
std::vector<Value*> localize_recurrent(Localizer& local);

}  // namespace tessera::ops
