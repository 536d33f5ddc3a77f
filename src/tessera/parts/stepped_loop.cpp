#include "tessera/parts/stepped_loop.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"

namespace tessera::parts {
namespace {

// A tensor as rows along one dimension: `lines` rows of elements, each element of the dimension with `bytes` bytes.
struct Rows {
  size_t lines = 1, bytes = 0;

  Rows(const Node& node, const Tensor& one, int64_t axis) {
    if (bits_of(one.dtype) < 8)
      fail("flow", "{}: it splits or joins {}, whose elements are smaller than a byte; cast it to int8 or uint8",
           node.label(), name_of(one.dtype));
    for (int64_t d = 0; d < axis; ++d) lines *= static_cast<size_t>(one.dims[static_cast<size_t>(d)]);
    bytes = lines == 0 ? 0 : one.bytes / lines;
  }
};

// Element `index` along dimension `axis`, which the result lacks.
Tensor item_of(const Node& node, const Tensor& whole, size_t axis, int64_t index) {
  Dims dims = whole.dims;
  dims.erase(dims.begin() + static_cast<long>(axis));
  Tensor item = Tensor::uninitialized(whole.dtype, dims);
  const Rows rows(node, item, static_cast<int64_t>(axis));
  const size_t stride = rows.bytes * static_cast<size_t>(whole.dims[axis]);
  for (size_t line = 0; line < rows.lines; ++line)
    std::memcpy(item.mutable_data() + line * rows.bytes,
                whole.data + line * stride + static_cast<size_t>(index) * rows.bytes, rows.bytes);
  return item;
}

// The rows side by side along a new dimension `axis`.
Tensor stacked(const Node& node, const std::vector<Tensor>& items, size_t axis) {
  Dims dims = items.front().dims;
  dims.insert(dims.begin() + static_cast<long>(axis), static_cast<int64_t>(items.size()));
  Tensor all = Tensor::uninitialized(items.front().dtype, dims);
  const Rows rows(node, items.front(), static_cast<int64_t>(axis));
  for (size_t i = 0; i < items.size(); ++i)
    for (size_t line = 0; line < rows.lines; ++line)
      std::memcpy(all.mutable_data() + (line * items.size() + i) * rows.bytes, items[i].data + line * rows.bytes,
                  rows.bytes);
  return all;
}

class Stepping {
 public:
  Stepping(const SteppedLoop& loop, const Node& node, const std::vector<Tensor>& operands,
           const std::vector<TensorType>& operand_types, Types& found)
      : loop_(loop), node_(node), operands_(operands), operand_types_(operand_types), found_(found) {}

  std::vector<Tensor> run(Tensors known, Types types, const std::function<void(Tensors&, Types&)>& run_body,
                          std::vector<TensorType>& result_types) {
    const size_t first = loop_.is_scan() ? 0 : 2;
    for (size_t c = 0; c < loop_.carried.size(); ++c)
      carry(c, operands_.at(first + c), operand_types_.at(first + c), known, types);
    const std::optional<int64_t> trips = trip_count();
    rows_.resize(loop_.rows.size());
    bool goes_on = loop_.is_scan() || operands_[1].dtype == DType::undefined || is_true(operands_[1]);
    int64_t iteration = 0;
    for (; goes_on && (!trips || iteration < *trips); ++iteration) {
      give(loop_.iteration, Tensor::of<int64_t>(DType::int64, loop_.iteration_dims, {iteration}), known, types);
      give(loop_.runs, Tensor::of<uint8_t>(DType::boolean, {}, {1}), known, types);
      for (size_t s = 0; s < loop_.items.size(); ++s) {
        const int64_t at = loop_.item_reversed[s] ? *trips - 1 - iteration : iteration;
        give_item(s, at, known, types);
      }
      try {
        run_body(known, types);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::user) throw;
        throw Error(error.kind(), "flow", fmt::format("{}, iteration {}: {}", node_.label(), iteration, error.what()));
      }
      for (size_t c = 0; c < loop_.carried.size(); ++c)
        carry(c, known.at(loop_.next[c]), types.at(loop_.next[c]), known, types);
      for (size_t r = 0; r < loop_.rows.size(); ++r) add_row(r, known.at(loop_.rows[r]), types.at(loop_.rows[r]));
      goes_on = loop_.is_scan() || is_true(known.at(loop_.goes_on));
    }
    std::vector<Tensor> results;
    for (const std::string& carried : loop_.carried) {
      results.push_back(known.at(carried));
      result_types.push_back(types.at(carried));
    }
    const Expr count = loop_.is_scan() ? item_shape(0)[item_axis(0)] : Expr::symbol(loop_.prefix + "_trips");
    for (size_t r = 0; r < loop_.rows.size(); ++r) {
      results.push_back(rows_of(r));
      const size_t axis = row_axis(r, results.back().dims.size());
      const auto row = found_.find(loop_.rows[r]);
      const Dims& dims = results.back().dims;
      Shape shape = row == found_.end() ? without(Shape(dims.begin(), dims.end()), axis) : *row->second.shape;
      shape.insert(shape.begin() + static_cast<long>(axis), count);
      result_types.push_back({results.back().dtype, std::move(shape)});
    }
    return results;
  }

 private:
  static void give(const std::string& name, Tensor tensor, Tensors& known, Types& types) {
    if (name.empty()) return;
    types[name] = exact_type(tensor);
    known[name] = std::move(tensor);
  }

  bool is_true(const Tensor& condition) const {
    if (condition.dtype != DType::boolean || condition.count() != 1)
      fail("flow", "{}: its condition is {} with {}; it must be one bool", node_.label(), name_of(condition.dtype),
           counted(condition.count(), "element"));
    return condition.to_int64().front() != 0;
  }

  // An operand of the iteration; its type fits all iterations so far.
  void carry(size_t index, Tensor value, const TensorType& type, Tensors& known, Types& types) {
    const std::string& name = loop_.carried[index];
    const auto before = found_.find(name);
    const TensorType common = before == found_.end() ? type : common_type(name, before->second, type);
    found_[name] = types[name] = common;
    known[name] = std::move(value);
  }

  std::optional<int64_t> trip_count() const {
    if (!loop_.is_scan()) {
      const Tensor& trips = operands_[0];
      if (trips.dtype == DType::undefined) return std::nullopt;
      if (trips.dtype != DType::int64 || trips.count() != 1)
        fail("flow", "{}: its trip count is {} with {}; it must be one int64", node_.label(), name_of(trips.dtype),
             counted(trips.count(), "element"));
      return trips.to_int64().front();
    }
    if (loop_.items.empty())
      fail("flow", "{}: it has no scan input, so its number of iterations is unknown", node_.label());
    const auto length = [&](size_t s) { return sequence(s).dims[item_axis(s)]; };
    for (size_t s = 1; s < loop_.items.size(); ++s)
      if (length(s) != length(0))
        fail("flow", "{}: its scan inputs have {} and {} along their scan axes; these must be equal", node_.label(),
             length(0), counted(length(s), "element"));
    return length(0);
  }

  const Tensor& sequence(size_t s) const { return operands_.at(loop_.carried.size() + s); }
  const Shape& item_shape(size_t s) const { return *operand_types_.at(loop_.carried.size() + s).shape; }
  size_t item_axis(size_t s) const {
    return ops::normalize_axis(node_, loop_.item_axes[s], sequence(s).dims.size(), "scan_input_axes");
  }
  size_t row_axis(size_t r, size_t rank) const {
    return ops::normalize_axis(node_, loop_.row_axes[r], rank, "scan_output_axes");
  }

  static Shape without(Shape shape, size_t axis) {
    shape.erase(shape.begin() + static_cast<long>(axis));
    return shape;
  }

  void give_item(size_t s, int64_t at, Tensors& known, Types& types) const {
    known[loop_.items[s]] = item_of(node_, sequence(s), item_axis(s), at);
    types[loop_.items[s]] = {sequence(s).dtype, without(item_shape(s), item_axis(s))};
  }

  void add_row(size_t r, Tensor row, const TensorType& type) {
    const std::string& name = loop_.rows[r];
    if (!rows_[r].empty() && rows_[r].front().dims != row.dims)
      fail("flow",
           "{}: iteration {} gives a row [{}] after rows [{}]; give rows of equal extents, or join them "
           "in a carried value",
           node_.label(), rows_[r].size(), fmt::join(row.dims, ", "), fmt::join(rows_[r].front().dims, ", "));
    const auto before = found_.find(name);
    found_[name] = before == found_.end() ? type : common_type(name, before->second, type);
    rows_[r].push_back(std::move(row));
  }

  Tensor rows_of(size_t r) {
    std::vector<Tensor>& rows = rows_[r];
    if (!rows.empty()) {
      if (loop_.row_reversed[r]) std::reverse(rows.begin(), rows.end());
      return stacked(node_, rows, row_axis(r, rows.front().dims.size() + 1));
    }
    // No iteration ran that would show a row's shape.
    TensorType type = found_.contains(loop_.rows[r]) ? found_.at(loop_.rows[r]) : loop_.row_types[r];
    if (!type.shape)
      fail("flow", "{}: it has no iterations, and its body does not declare how many dimensions a row has",
           node_.label());
    Dims dims;
    for (const Expr& extent : *type.shape) dims.push_back(extent.constant().value_or(0));
    dims.insert(dims.begin() + static_cast<long>(row_axis(r, dims.size() + 1)), 0);
    return Tensor::zeros(type.dtype, dims);
  }

  const SteppedLoop& loop_;
  const Node& node_;
  const std::vector<Tensor>& operands_;
  const std::vector<TensorType>& operand_types_;
  Types& found_;
  std::vector<std::vector<Tensor>> rows_;
};

}  // namespace

TensorType exact_type(const Tensor& tensor) {
  return {tensor.dtype, Shape(tensor.dims.begin(), tensor.dims.end())};
}

TensorType common_type(const std::string& name, const TensorType& before, const TensorType& now) {
  if (before.dtype != now.dtype || before.shape->size() != now.shape->size()) return now;
  TensorType common = now;
  for (size_t d = 0; d < now.shape->size(); ++d)
    if ((*before.shape)[d] != (*now.shape)[d]) (*common.shape)[d] = Expr::symbol(fmt::format("{}_{}", name, d));
  return common;
}

std::vector<Tensor> run_stepped(const SteppedLoop& loop, const Node& node, const std::vector<Tensor>& operands,
                                const std::vector<TensorType>& operand_types, const Tensors& known, const Types& types,
                                const std::function<void(Tensors&, Types&)>& run_body, Types& found,
                                std::vector<TensorType>& result_types) {
  return Stepping(loop, node, operands, operand_types, found).run(known, types, run_body, result_types);
}

}  // namespace tessera::parts
