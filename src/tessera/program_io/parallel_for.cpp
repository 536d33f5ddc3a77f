#include "tessera/program_io/parallel_for.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/program_io/lowering.h"
#include "tessera/program_io/misfit.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/proof/layouts.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

// Names in a body must differ from those outside.
constexpr std::string_view kInside = ".body";

std::vector<std::string> names_of(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

std::vector<int64_t> sizes_of(const Mesh& mesh) {
  std::vector<int64_t> sizes;
  for (const MeshAxis& axis : mesh.axes()) sizes.push_back(axis.size);
  return sizes;
}

}  // namespace

OnnxModel wrap_parallel_for(OnnxModel model, const Mesh& mesh) {
  std::unique_ptr<Graph> body = std::move(model.graph);
  model.graph = std::make_unique<Graph>();
  Graph& outer = *model.graph;
  outer.name = body->name;
  auto loop = std::make_unique<Node>();
  loop->op_type = kParallelFor;
  loop->domain = spmd::kCommDomain;
  loop->set("axes", names_of(mesh));
  loop->set("sizes", sizes_of(mesh));
  loop->set("from", std::vector<int64_t>(body->outputs.size(), 0));

  // The body's captured values keep their outer names.
  Value* rank = body->find(kRankInput);
  if (!rank) rank = body->add_input(kRankInput, {DType::int64, Shape{}});
  auto capture = [&](Value* inside, Value* outside) {
    inside->kind = ValueKind::input;
    inside->data = {};
    loop->captures.push_back(inside->name);
    loop->inputs.push_back(outside);
    outside->extra = inside->extra;
  };
  for (Value* input : std::vector<Value*>(body->inputs))
    if (input != rank) capture(input, outer.add_input(input->name, input->type));
  for (Value* state : body->values_of(ValueKind::state)) capture(state, outer.add_state(state->name, state->data));
  body->inputs = {rank};
  std::map<const Value*, std::string> called;  // outputs by their names in the model; a value may be several outputs
  for (Value* output : body->outputs) {
    auto [known, first] = called.emplace(output, output->name);
    const std::string& name = known->second;
    if (first) body->rename(output, name + std::string(kInside));
    Value* result = outer.add_value(name, ValueKind::result, output->type);
    result->extra = output->extra;
    loop->outputs.push_back(result);
    outer.outputs.push_back(result);
  }
  loop->set("body", Region(std::move(body)));
  outer.adopt_node(std::move(loop));
  outer.verify("write");
  return model;
}

std::optional<Mesh> parallel_for_mesh(const OnnxModel& model, const std::string& source) {
  const Graph& outer = *model.graph;
  if (outer.nodes().size() != 1 || !outer.nodes()[0]->is(kParallelFor, spmd::kCommDomain)) return std::nullopt;
  const Node& loop = *outer.nodes()[0];
  const auto* names = loop.get<std::vector<std::string>>("axes");
  const std::vector<int64_t> sizes = loop.get_ints("sizes");
  if (!names || names->size() != sizes.size())
    fail("program", "'{}' has a ParallelFor without one of 'sizes' for each of its 'axes'; write the program again",
         source);
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) axes.push_back({(*names)[i], sizes[i]});
  return Mesh(axes);
}

OnnxModel unwrap_parallel_for(OnnxModel model, const Mesh& mesh, const std::string& source) {
  Graph& outer = *model.graph;
  auto wrong = [&](std::string_view what) { fail("program", "'{}' {}; write the program again", source, what); };
  if (outer.nodes().size() != 1 || !outer.nodes()[0]->is(kParallelFor, spmd::kCommDomain))
    wrong("is not one ParallelFor");
  const Node& loop = *outer.nodes()[0];
  const auto* held = loop.get<Region>("body");
  const auto* axes = loop.get<std::vector<std::string>>("axes");
  if (!held || !axes) wrong("has a ParallelFor without axes or a body");
  if (*axes != names_of(mesh) || loop.get_ints("sizes") != sizes_of(mesh))
    wrong(fmt::format("has a ParallelFor over another mesh than {}", mesh.str()));
  if (const auto from = loop.get_ints("from");
      from != std::vector<int64_t>(loop.outputs.size(), 0) || (*held)->outputs.size() != loop.outputs.size())
    wrong("has a ParallelFor that does not take all its results from rank 0");
  auto require_alike = [&](const Value& inside, const Value& outside) {
    if (inside.dtype() == DType::undefined || agrees(outside.type, inside.type)) return;
    throw Misfit({"type",
                  fmt::format("'{}' is stated as {}, but '{}' in the body of the ParallelFor as {}", outside.name,
                              proof::text_of(outside.type), inside.name, proof::text_of(inside.type)),
                  {{0, loop.label()}}});
  };
  std::unique_ptr<Graph> body = (*held)->clone();
  for (size_t c = 0; c < loop.captures.size(); ++c) {
    Value* inside = body->find(loop.captures[c]);
    const Value* outside = loop.inputs[loop.operand_count() + c];
    check(inside != nullptr, "captures are values of the body");
    require_alike(*inside, *outside);
    inside->type = outside->type;
    inside->extra = outside->extra;
    if (outside->has_data()) {
      inside->kind = outside->kind;
      inside->data = outside->data;
      inside->data_extra = outside->data_extra;
    } else {
      body->inputs.push_back(inside);
    }
  }
  // An input that the body does not read is still an input.
  const std::set<const Value*> read(loop.inputs.begin(), loop.inputs.end());
  for (const Value* input : outer.inputs)
    if (!read.contains(input)) {
      if (Value* other = body->find(input->name)) body->rename(other, "");
      body->add_input(input->name, input->type)->extra = input->extra;
    }
  for (size_t k = 0; k < body->outputs.size(); ++k)
    if (loop.outputs[k]) require_alike(*body->outputs[k], *loop.outputs[k]);
  // First gives all values distinct names, then their outer names.
  std::map<Value*, std::string> named;
  for (size_t k = 0; k < body->outputs.size(); ++k)
    if (loop.outputs[k] && named.emplace(body->outputs[k], loop.outputs[k]->name).second)
      body->rename(body->outputs[k], "");
  for (const auto& [value, name] : named) body->rename(value, name);
  model.graph = std::move(body);
  return model;
}

}  // namespace tessera::program_io
