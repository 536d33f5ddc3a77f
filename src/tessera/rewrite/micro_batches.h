#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ops/library/node_builder.h"

namespace tessera::rewrite {

/// The equal parts of a batch that go through a model one after the other. The batch is the first extent of the model's
/// first input that has one; inputs whose first extent is the same are cut, the others belong to every part.
class MicroBatches {
 public:
  using Sizes = std::map<std::string, int64_t, std::less<>>;

  /// `whole` has the sizes of the model's symbols for the whole batch, as far as they are known. A batch that is a
  /// number is that of one part. Throws a user error if there are several parts and no batch, or one that cannot be
  /// cut.
  MicroBatches(const Graph& model, int parts, const Sizes& whole);

  int count() const { return parts_; }
  /// The batch of a model for one part, which is this one or a rewritten one.
  static Expr batch_of(const Graph& model);
  /// Whether the batch has a size.
  bool has_size() const { return !batch_ || batch_size(part_sizes_).has_value(); }
  /// Throws a user error unless it has.
  void require_size() const;
  /// The sizes of the model's symbols for one part; that of the batch is missing if it has none.
  const Sizes& part_sizes() const { return part_sizes_; }
  bool cuts(const Value& input) const;
  /// The number of labels of one sample, if the labels' first dimension (of extent `rows` in one part) is not the batch
  /// but, for example, tokens. Throws a user error if samples have different numbers.
  Expr rows_per_sample(const Expr& rows) const;
  /// A part's rows of a tensor that has those of all parts: every sample whose number leaves the remainder `part`, so
  /// that ranks with a run of samples each have some of every part. A sample is `each` rows.
  Value* rows_of(ops::NodeBuilder& b, Value* whole, int part, const Expr& each) const;
  /// The whole tensor whose parts' rows these are, in order.
  Value* whole_of(ops::NodeBuilder& b, const std::vector<Value*>& parts, const Expr& each) const;

 private:
  /// The size of the batch, or of its part in a micro-batch; nullopt if a symbol in it has no size.
  std::optional<int64_t> batch_size(const Sizes& sizes) const;

  const Graph& model_;
  int parts_;
  Sizes part_sizes_;
  std::optional<Expr> batch_;
};

}  // namespace tessera::rewrite
