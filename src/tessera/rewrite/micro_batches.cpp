#include "tessera/rewrite/micro_batches.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/solve_extents.h"

namespace tessera::rewrite {

MicroBatches::MicroBatches(const Graph& model, int parts, const Sizes& whole)
    : model_(model), parts_(parts), part_sizes_(whole) {
  if (parts < 1) fail("micro-batches", "`micro_batches` is {}; it must be at least 1", parts);
  if (parts == 1) return;
  batch_ = batch_of(model);
  if (batch_->is_constant()) return;
  const auto size = batch_size(whole);
  if (!size) return;
  if (*size % parts != 0)
    fail("micro-batches", "a batch of {} cannot be cut into {} equal micro-batches; choose a batch that can", *size,
         parts);
  const int64_t part = *size / parts;
  for (const auto& [symbol, found] : solve_extents({{*batch_, part}})) part_sizes_[symbol] = found.size;
  if (batch_size(part_sizes_) != part)
    fail("micro-batches",
         "the batch {} cannot be {}, as each of {} micro-batches would have; choose a batch that can be cut",
         batch_->str(), part, parts);
}

Expr MicroBatches::batch_of(const Graph& model) {
  const auto with_batch = std::find_if(model.inputs.begin(), model.inputs.end(),
                                       [](const Value* input) { return input->has_shape() && input->rank() > 0; });
  if (with_batch == model.inputs.end())
    fail("micro-batches", "no input has a batch dimension to cut; leave out `micro_batches`");
  return (*with_batch)->shape()[0];
}

void MicroBatches::require_size() const {
  if (!has_size())
    fail("micro-batches", "the size of the batch '{}' is not known; give it with `shapes`", batch_->str());
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
    fail("micro-batches",
         "the output that the loss takes has {} rows for a batch of {}, so its labels cannot be divided among parts; "
         "leave `micro_batches` out, or name another `output`",
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

Value* MicroBatches::whole_of(ops::NodeBuilder& b, const std::vector<Value*>& parts, const Expr& each) const {
  Shape whole = parts.front()->shape(), cut = whole;
  cut.front() = Expr::exact_divide(cut.front(), each).value();
  cut.insert(cut.begin() + 1, {Expr(1), each});
  whole.front() = whole.front() * parts_;
  std::vector<Value*> cuts;
  for (Value* part : parts) cuts.push_back(b.reshape(part, cut));
  return b.reshape(b.emit("Concat", cuts, {{"axis", int64_t{1}, ""}}), whole);
}

}  // namespace tessera::rewrite
