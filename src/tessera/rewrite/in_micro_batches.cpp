#include "tessera/rewrite/in_micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/ir/append_copy.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/across_samples.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

void rename_symbol(Graph& graph, const std::string& from, const std::string& to) {
  for (const auto& value : graph.values()) {
    if (!value->has_shape()) continue;
    for (Expr& extent : *value->type.shape)
      extent = extent.substitute(
          [&](std::string_view name) { return name == from ? std::optional(Expr::symbol(to)) : std::nullopt; });
  }
  for (const auto& node : graph.nodes())
    for (Graph* region : node->regions()) rename_symbol(*region, from, to);
}

// The batch of a part as a symbol, so that sizes of the whole batch are not taken for it.
std::string symbol_of_part(const Graph& graph, const std::string& batch) {
  std::set<std::string> taken;
  for (const auto& value : graph.values())
    if (value->has_shape())
      for (const Expr& extent : value->shape()) extent.collect_symbols(taken);
  std::string name = batch + "_part";
  while (taken.contains(name)) name += '_';
  return name;
}

void require_first(const Value& input, const std::string& batch) {
  if (!input.has_shape()) return;
  for (size_t d = 0; d < input.rank(); ++d) {
    std::set<std::string> symbols;
    input.shape()[d].collect_symbols(symbols);
    const bool is_batch = d == 0 && input.shape()[d].as_symbol() == batch;
    if (!is_batch && symbols.contains(batch))
      fail("micro-batches",
           "dimension {} of the input '{}' depends on the batch '{}', but only first dimensions are cut; leave out "
           "`micro_batches`",
           d, input.name, batch);
  }
}

// Moves the size of a symbol to another name.
void rename_size(MicroBatches::Sizes& sizes, const std::string& from, const std::string& to) {
  if (auto size = sizes.extract(from)) {
    size.key() = to;
    sizes.insert(std::move(size));
  }
}

// Gives the batch of `one`, which computes one part, a symbol of its own, if it is a symbol.
void name_batch(Graph& one, const Expr& batch, MicroBatches::Sizes& sizes) {
  if (batch.is_constant()) return;
  const auto symbol = batch.as_symbol();
  if (!symbol)
    fail("micro-batches",
         "the batch has the extent {}, which is neither a symbol nor a number; leave out `micro_batches`", batch.str());
  for (const Value* input : one.inputs) require_first(*input, *symbol);
  const std::string part = symbol_of_part(one, *symbol);
  rename_symbol(one, *symbol, part);
  rename_size(sizes, *symbol, part);
}

std::vector<TensorType> types_of(const std::vector<Value*>& values) {
  std::vector<TensorType> types;
  for (const Value* value : values) types.push_back(value->type);
  return types;
}

// Rewriting gives extents that must be equal one symbol.
void follow_symbols(const std::vector<TensorType>& before, const std::vector<TensorType>& after,
                    MicroBatches::Sizes& sizes) {
  for (size_t i = 0; i < before.size(); ++i)
    for (size_t d = 0; before[i].shape && d < before[i].shape->size(); ++d) {
      const auto from = (*before[i].shape)[d].as_symbol(), to = (*after[i].shape)[d].as_symbol();
      if (from && to && *from != *to) rename_size(sizes, *from, *to);
    }
}

// Parts would each begin with the states that the whole batch begins with, and draw the same random numbers.
void require_repeatable(const Graph& one) {
  for (const Value* state : one.values_of(ValueKind::state))
    if (state->next)
      fail("micro-batches", "the state '{}' changes, and parts of a batch cannot share that; leave out `micro_batches`",
           state->name);
  for (const auto& node : one.nodes())
    if (const ops::OpDef* op = ops::find_op(node->op_type, node->domain); op && op->counter)
      fail("micro-batches", "{} draws random numbers, and would draw the same for each part; leave out `micro_batches`",
           node->label());
}

bool depends_on(const Expr& extent, const Expr& batch) {
  const auto symbol = batch.as_symbol();
  std::set<std::string> symbols;
  extent.collect_symbols(symbols);
  return symbol && symbols.contains(*symbol);
}

// The rows of a sample in an output; nullopt if its first dimension has not those of all samples, or another one also
// has the batch.
std::optional<Expr> rows_of_sample(const Value& output, const Expr& batch) {
  if (!output.has_shape() || output.rank() == 0) return std::nullopt;
  const Shape& shape = output.shape();
  if (std::any_of(shape.begin() + 1, shape.end(), [&](const Expr& extent) { return depends_on(extent, batch); }))
    return std::nullopt;
  // A number may be a multiple by chance.
  if (!depends_on(shape[0], batch)) return shape[0] == batch ? std::optional(Expr(1)) : std::nullopt;
  return Expr::exact_divide(shape[0], batch);
}

Expr rows_per_sample(const Value& output, const Expr& batch) {
  const auto each = rows_of_sample(output, batch);
  if (!each)
    fail("micro-batches",
         "the output '{}' is {}: its first extent is not a multiple of the batch {}, or others depend on that, so it "
         "cannot be put together of parts; name other outputs, or leave out `micro_batches`",
         output.name, output.has_shape() ? to_string(output.shape()) : "of unknown shape", batch.str());
  return *each;
}

std::string note_across_samples(const Graph& one, const MicroBatches& batches) {
  std::vector<const Value*> cut;
  std::copy_if(one.inputs.begin(), one.inputs.end(), std::back_inserter(cut),
               [&](const Value* input) { return batches.cuts(*input); });
  const Node* found = across_samples(one, cut);
  return found ? fmt::format("{} computes from several samples, and in micro-batches from those of one part",
                             found->label())
               : "";
}

class Repeater {
 public:
  Repeater(const OnnxModel& one, const MicroBatches& batches, const Expr& batch)
      : one_(*one.graph), batches_(batches), batch_(batch), build_(*made_.graph, "micro_batches") {
    made_.ir_version = std::max<int64_t>(one.ir_version, 11);
    made_.opset_imports = one.opset_imports;
    made_.source = one.source;
    made_.extra = one.extra;
    made_.graph->name = one_.name;
    made_.graph->extra = one_.extra;
  }

  OnnxModel run() {
    for (const Value* input : one_.inputs) {
      TensorType type = input->type;
      if (batches_.cuts(*input)) type.shape->front() = type.shape->front() * batches_.count();
      inputs_.push_back(made_.graph->add_input(input->name, type));
    }
    std::vector<std::vector<Value*>> outputs(one_.outputs.size());
    for (int part = 0; part < batches_.count(); ++part) add_part(part, outputs);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Value& output = *one_.outputs[o];
      if (const auto input = std::find(one_.inputs.begin(), one_.inputs.end(), &output); input != one_.inputs.end()) {
        made_.graph->outputs.push_back(inputs_[static_cast<size_t>(input - one_.inputs.begin())]);
        continue;
      }
      Value* whole = batches_.whole_of(build_, outputs[o], rows_per_sample(output, batch_));
      made_.graph->rename(whole, output.name);
      made_.graph->outputs.push_back(whole);
    }
    made_.graph->erase_dead();
    made_.graph->verify("micro-batches");
    return std::move(made_);
  }

 private:
  void add_part(int part, std::vector<std::vector<Value*>>& outputs) {
    const size_t earlier = made_.graph->nodes().size();
    std::map<const Value*, Value*> known;
    for (size_t i = 0; i < inputs_.size(); ++i)
      known[one_.inputs[i]] = batches_.cuts(*inputs_[i]) ? batches_.rows_of(build_, inputs_[i], part, 1) : inputs_[i];
    append_copy(*made_.graph, one_, known, fmt::format(".part{}", part));
    const auto& nodes = made_.graph->nodes();
    for (size_t n = earlier; n < nodes.size(); ++n) nodes[n]->seat = {-1, part, Segment::forward};
    for (size_t o = 0; o < outputs.size(); ++o) outputs[o].push_back(known.at(one_.outputs[o]));
  }

  const Graph& one_;
  const MicroBatches& batches_;
  const Expr batch_;
  OnnxModel made_;
  ops::NodeBuilder build_;
  std::vector<Value*> inputs_;
};

}  // namespace

OnnxModel in_micro_batches(const OnnxModel& model, int parts, MicroBatches::Sizes& sizes,
                           const std::set<std::string>& kept, std::string* note) {
  const MicroBatches batches(*model.graph, parts, sizes);
  OnnxModel one = model.clone();
  if (parts == 1) return one;
  if (batches.has_size()) sizes = batches.part_sizes();
  name_batch(*one.graph, MicroBatches::batch_of(*one.graph), sizes);
  const std::vector<TensorType> types = types_of(one.graph->inputs);
  RewriteOptions rewriting;
  rewriting.barriers = kept;
  rewrite_model(one, rewriting);
  follow_symbols(types, types_of(one.graph->inputs), sizes);
  const Expr batch = MicroBatches::batch_of(*one.graph);
  require_repeatable(*one.graph);
  for (const Value* output : one.graph->outputs) rows_per_sample(*output, batch);
  if (note) *note = note_across_samples(*one.graph, batches);
  return Repeater(one, batches, batch).run();
}

}  // namespace tessera::rewrite
