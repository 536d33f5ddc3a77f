#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/inline.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/onnx/metadata.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/program_io/misfit.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/program_io/rank_model.h"
#include "tessera/proof/layouts.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera::program_io {
namespace {

[[noreturn]] void misfit(const std::string& source, const std::string& what) {
  fail("program", "'{}' does not match its manifest: {}; write the program again", source, what);
}

// Extents between commas that are not inside parentheses.
std::optional<Shape> read_shape(std::string_view text) {
  Shape shape;
  while (!text.empty()) {
    int depth = 0;
    size_t end = 0;
    for (; end < text.size() && (text[end] != ',' || depth > 0); ++end)
      depth += (text[end] == '(') - (text[end] == ')');
    auto extent = Expr::parse(text.substr(0, end));
    if (!extent || text.substr(0, end).find('@') != std::string_view::npos) return std::nullopt;
    shape.push_back(*extent);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shape;
}

class RankModelReader {
 public:
  RankModelReader(OnnxModel model, const Manifest& manifest, const std::string& source, const std::vector<int>& ranks,
                  std::optional<int64_t> rank)
      : manifest_(manifest),
        source_(source),
        ranks_(ranks),
        rank_(rank),
        coordinates_(manifest.mesh.coordinates(ranks.front())) {
    program_.mesh = manifest.mesh;
    program_.hints = manifest.hints;
    program_.equal_extents = manifest.equal_extents;
    program_.graph = std::move(model.graph);
  }

  ReadProgram run() {
    settle_kinds();
    pass_copies_of_constants();
    forget_foreign_sizes();
    settle_inputs();
    stated_.merge(fold_expression_nodes(graph(), manifest_.mesh, rank_, ranks_));
    drop_unread_operands();
    for (const auto& value : graph().values()) place(*value);
    std::vector<Value*> listed = graph().inputs;
    for (const Manifest::Tensor& input : manifest_.inputs) {
      Value* value = take_port(input, program_.inputs);
      if (std::erase(listed, value) == 0) wrong("'{}' is not an input", input.value);
    }
    if (!listed.empty()) wrong("the input '{}' is not in the manifest", listed[0]->name);
    // A state's next value counts as used.
    graph().outputs.clear();
    for (const Manifest::Tensor& output : manifest_.outputs)
      if (output.sharding.lives_on(manifest_.mesh, coordinates_))
        graph().outputs.push_back(take_port(output, program_.outputs));
      else
        program_.outputs.push_back({output.name, nullptr});
    flow::arrange_regions(graph());
    spmd::verify(program_, "program");
    return {std::move(program_), std::move(stated_)};
  }

 private:
  Graph& graph() { return *program_.graph; }

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    misfit(source_, fmt::format(format, std::forward<Args>(args)...));
  }

  Value& find(const std::string& name) {
    Value* value = graph().find(name);
    if (!value) wrong("there is no tensor '{}'", name);
    return *value;
  }

  // ONNX knows only initializers; the manifest says which of them are states.
  void settle_kinds() {
    for (const auto& value : graph().values())
      if (value->kind == ValueKind::state) value->kind = ValueKind::constant;
    for (const Manifest::State& state : manifest_.states) {
      if (!state.sharding.lives_on(manifest_.mesh, coordinates_)) continue;
      Value& value = find(state.value);
      if (value.kind != ValueKind::constant) wrong("the state '{}' has no initializer", state.value);
      value.kind = ValueKind::state;
      value.data = {};
      value.changing = state.changes;
      if (state.next) graph().set_next(&value, &find(*state.next));
      program_.placements[&value] = {state.name, state.global, state.sharding, state.origin};
    }
    for (Value* constant : graph().values_of(ValueKind::constant)) constant->data = aligned(constant->data);
  }

  // A tool may copy a constant, even one whose elements must be known before the run.
  void pass_copies_of_constants() {
    std::vector<Node*> copies;
    for (const auto& node : graph().nodes())
      if (node->is("Identity") && node->output() && !graph().is_output(node->output())) copies.push_back(node.get());
    for (Node* copy : copies) {
      Value* of = copy->input(0);
      if (!of || (of->kind != ValueKind::constant && of->kind != ValueKind::expression)) continue;
      if (const TensorType stated = copy->output()->type; !agrees(stated, of->type)) {
        copy->output()->type = of->type;
        throw Misfit(proof::misstated(*copy->output(), stated, ranks_.front()));
      }
      graph().replace_uses(copy->output(), of);
      graph().erase(copy);
    }
  }

  // Whether a member other than this rank may read an operand of the node.
  bool gives(const Node& node, int rank) const {
    if (!dialect::communicates(node)) return true;
    const spmd::CollectiveAttributes collective = spmd::read_collective(node, manifest_.mesh);
    const std::vector<int> members = group_of(rank, parse_axes(collective.axes, manifest_.mesh), manifest_.mesh);
    return dialect::gives(collective,
                          static_cast<size_t>(std::find(members.begin(), members.end(), rank) - members.begin()));
  }

  // Tools give names to sizes that they cannot derive. Only the nodes and the manifest determine such a size.
  void forget_foreign_sizes() {
    std::set<std::string> known;
    for (const Manifest::Tensor& input : manifest_.inputs)
      for (const Expr& extent : *input.global.shape) extent.collect_symbols(known);
    for (const MeshAxis& axis : manifest_.mesh.axes()) known.insert("@" + axis.name);
    for (const auto& value : graph().values()) {
      if ((!value->producer && value->kind != ValueKind::input) || !value->has_shape()) continue;
      std::set<std::string> symbols;
      for (const Expr& extent : value->shape()) extent.collect_symbols(symbols);
      if (!std::includes(known.begin(), known.end(), symbols.begin(), symbols.end())) value->type.shape.reset();
    }
  }

  // Inputs have the types of the manifest, whatever the file states.
  void settle_inputs() {
    for (const Manifest::Tensor& input : manifest_.inputs) {
      Value& value = find(input.value);
      if (value.producer || value.dtype() != input.global.dtype) continue;  // refused where it becomes a port
      Shape shape = local_shape(input.sharding, manifest_.mesh);
      if (rank_)
        for (Expr& extent : shape) extent = bind_rank(extent, manifest_.mesh, coordinates_);
      if (value.has_shape() && value.rank() != shape.size()) continue;
      if (value.has_shape() && value.shape() != shape) stated_[value.name] = value.type;
      value.type.shape = std::move(shape);
    }
  }

  // Files contain zeros instead of these, which a tool may have folded or copied.
  void drop_unread_operands() {
    std::set<Value*> unread;
    for (const auto& node : graph().nodes()) {
      const Value* operand = node->domain == spmd::kCommDomain ? node->input(0) : nullptr;
      if (!operand) continue;
      auto any_gives = [&] {
        return std::any_of(ranks_.begin(), ranks_.end(), [&](int rank) { return gives(*node, rank); });
      };
      const Value* filler = operand;
      while (filler->producer && filler->producer->is("Identity") && filler->producer->input(0))
        filler = filler->producer->input(0);
      const bool stored = filler->kind == ValueKind::constant || filler->kind == ValueKind::expression;
      if (filler->producer ? !filler->producer->is("ConstantOfShape") : !stored) continue;
      if (any_gives()) continue;
      unread.insert(node->inputs[0]);
      graph().set_input(node.get(), 0, nullptr);
    }
    while (!unread.empty()) {
      Value* const value = unread.extract(unread.begin()).value();
      if (!value->producer || !value->uses.empty() || graph().is_output(value)) continue;
      Node* const maker = value->producer;
      if (maker->is("Identity") && maker->input(0)) unread.insert(maker->input(0));
      graph().erase(maker);
    }
  }

  Value* take_port(const Manifest::Tensor& tensor, std::vector<spmd::Port>& ports) {
    Value& value = find(tensor.value);
    if (value.dtype() != tensor.global.dtype || !value.has_shape() || value.rank() != tensor.global.shape->size())
      wrong("'{}' is not of type {} and rank {}", tensor.value, name_of(tensor.global.dtype),
            tensor.global.shape->size());
    program_.placements[&value] = {tensor.name, tensor.global, tensor.sharding};
    ports.push_back({tensor.name, &value});
    return &value;
  }

  void place(Value& value) {
    auto placed = stated_placement(value, manifest_.mesh, source_);
    value.extra.clear();
    if (placed) program_.placements.try_emplace(&value, std::move(*placed));
  }

  const Manifest& manifest_;
  const std::string& source_;
  const std::vector<int>& ranks_;
  const std::optional<int64_t> rank_;
  const std::vector<int64_t> coordinates_;  // of the first rank
  spmd::Program program_;
  StatedTypes stated_;
};

}  // namespace

std::optional<TensorType> read_global_type(std::string_view text) {
  const size_t bracket = text.find('[');
  if (bracket == std::string_view::npos || !text.ends_with(']')) return std::nullopt;
  auto shape = read_shape(text.substr(bracket + 1, text.size() - bracket - 2));
  if (!shape) return std::nullopt;
  return TensorType{dtype_named(text.substr(0, bracket)), std::move(shape)};
}

std::optional<spmd::Placement> stated_placement(const Value& value, const Mesh& mesh, const std::string& source) {
  if (value.extra.empty()) return std::nullopt;
  auto metadata = all_metadata(value);
  if (!metadata.contains(std::string(kShardingKey))) return std::nullopt;
  const std::string& text = metadata[std::string(kGlobalKey)];
  auto type = read_global_type(text);
  if (!type) misfit(source, fmt::format("'{}' of '{}' is not a type of a whole tensor", text, value.name));
  spmd::Placement placement;
  placement.name = metadata[std::string(kValueKey)];
  placement.global = std::move(*type);
  placement.sharding = parse_sharding(metadata[std::string(kShardingKey)], *placement.global.shape, mesh, value.name);
  return placement;
}

ReadProgram program_of(OnnxModel model, const Manifest& manifest, const std::string& source,
                       const std::vector<int>& ranks, bool bound) {
  const std::optional<int64_t> rank = bound ? std::optional<int64_t>(ranks.front()) : std::nullopt;
  take_position_inputs(*model.graph, manifest.mesh, rank);
  dialect::inline_calls(model);
  // A receive may not depend on anything else in its branch or body; its token operand keeps it there.
  std::map<Node*, Value*> around;
  rewrite::open_regions(*model.graph, [&](Node* node, Value* token) {
    if (dialect::communicates(*node)) around[node] = token;
  });
  dialect::settle(model, manifest.mesh, rank);
  for (const auto& [node, token] : around)
    model.graph->set_input(node, dialect::find_schema(node->op_type)->operands.size(), token);
  return RankModelReader(std::move(model), manifest, source, ranks, rank).run();
}

}  // namespace tessera::program_io
