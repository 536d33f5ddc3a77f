#include "tessera/train/micro_batches.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/solve_extents.h"

namespace tessera::train {

MicroBatches::MicroBatches(const Graph& model, int parts, const Sizes& whole)
    : model_(model), parts_(parts), part_sizes_(whole) {
  if (parts < 1) fail("train", "`micro_batches` is {}; it must be at least 1", parts);
  if (parts == 1) return;
  const auto with_batch = std::find_if(model.inputs.begin(), model.inputs.end(),
                                       [](const Value* input) { return input->has_shape() && input->rank() > 0; });
  if (with_batch == model.inputs.end())
    fail("train", "no input has a batch dimension to cut; leave out `micro_batches`");
  batch_ = (*with_batch)->shape()[0];
  if (batch_->is_constant()) return;
  const auto size = batch_size(whole);
  if (!size) fail("train", "micro-batches need the size of the batch '{}'; give it with `shapes`", batch_->str());
  if (*size % parts != 0)
    fail("train", "a batch of {} cannot be cut into {} equal micro-batches; choose a batch that can", *size, parts);
  const int64_t part = *size / parts;
  for (const auto& [symbol, found] : solve_extents({{*batch_, part}})) part_sizes_[symbol] = found.size;
  if (batch_size(part_sizes_) != part)
    fail("train", "the batch {} cannot be {}, as each of {} micro-batches would have; choose a batch that can be cut",
         batch_->str(), part, parts);
}

std::optional<int64_t> MicroBatches::batch_size(const Sizes& sizes) const {
  std::set<std::string> symbols;
  batch_->collect_symbols(symbols);
  const bool known =
      std::all_of(symbols.begin(), symbols.end(), [&](const auto& symbol) { return sizes.contains(symbol); });
  return known ? std::optional(batch_->evaluate(sizes)) : std::nullopt;
}

bool MicroBatches::cuts(const Value& input) const {
  if (!batch_) return false;
  const Value* own = model_.find(input.name);
  return own && own->has_shape() && own->rank() > 0 && own->shape()[0] == *batch_;
}

Expr MicroBatches::rows_per_sample(const Expr& rows) const {
  const auto known = batch_size(part_sizes_);
  const Expr samples = known ? Expr(*known) : *batch_;
  const auto each = Expr::exact_divide(rows, samples);
  if (!each)
    fail("train",
         "the output that the loss takes has {} rows for a batch of {}, so its labels cannot be divided "
         "among micro-batches; leave `micro_batches` out, or name another `output`",
         rows.str(), samples.str());
  return *each;
}

Value* MicroBatches::rows_of(ops::NodeBuilder& b, Value* whole, int part, const Expr& each) const {
  Shape one = whole->shape(), cut = one;
  one.front() = Expr::exact_divide(cut.front(), parts_).value();
  cut.front() = Expr::exact_divide(one.front(), each).value();
  cut.insert(cut.begin() + 1, {Expr(parts_), each});
  return b.reshape(b.slice(b.reshape(whole, cut), 1, part, part + 1), one);
}

}  // namespace tessera::train
