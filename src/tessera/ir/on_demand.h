#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/ir/tensor.h"

/// Tensors without bytes, whose elements are functions of their indices: readers compute the elements that they need.
/// Their `data` is null.
namespace tessera {

/// Elements [begin, end) of a tensor with bytes.
struct SourceRange {
  const Tensor* source = nullptr;
  int64_t begin = 0, end = 0;
};

class ElementMaker {
 public:
  virtual ~ElementMaker() = default;
  /// Makes `count` elements from the row-major index `first` of the whole tensor on. Several threads may call it.
  virtual void make(int64_t first, int64_t count, std::byte* to) const = 0;
  /// The tensor with bytes whose element i is converted to element i of this one, depending only on both dtypes; null:
  /// none.
  virtual const Tensor* source() const { return nullptr; }
  /// Equal for makers that make the same elements of the same bytes in memory. Nullopt: not known, so that it equals no
  /// other maker.
  virtual std::optional<uint64_t> identity() const { return std::nullopt; }
  /// Adds ranges that contain all bytes in memory from which these elements are made, in an order that does not depend
  /// on their addresses.
  virtual void add_sources(int64_t /*first*/, int64_t /*count*/, std::vector<SourceRange>& /*sources*/) const {}
  /// Says that these elements have been made and will not be needed again soon, so pages of files behind them may be
  /// released.
  virtual void let_go(int64_t /*first*/, int64_t /*count*/) const {}
};

Tensor on_demand(DType dtype, Dims dims, std::shared_ptr<const ElementMaker> maker);

/// The maker of a tensor's elements; null if it has its bytes, or has lost them.
const ElementMaker* maker_of(const Tensor& tensor);

/// Elements [start, start + size) of dimension `dim`, on demand too. The tensor has a maker.
Tensor part_on_demand(const Tensor& whole, size_t dim, int64_t start, int64_t size);

/// The tensor with all of its bytes; itself if it has no maker.
Tensor made_whole(const Tensor& tensor);

/// The bytes that a tensor's elements are made from: its own, or those of its maker's source; null: there are none.
const Tensor* bytes_behind(const Tensor& tensor);
/// The address of these bytes or, if there are none, the identity of the maker; tensors of one type and origin are
/// equal. 0: the elements are lost.
uint64_t origin_of(const Tensor& tensor);
/// ElementMaker::add_sources; a tensor with bytes is its own source.
void add_sources_of(const Tensor& tensor, int64_t first, int64_t count, std::vector<SourceRange>& sources);

}  // namespace tessera
