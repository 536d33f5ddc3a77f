#include <fmt/ranges.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <set>

#include "tessera/api/impl.h"
#include "tessera/api/session.h"
#include "tessera/api/stepped_loop.h"
#include "tessera/base/error.h"
#include "tessera/compiler/segments.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/regions.h"
#include "tessera/ir/set_sizes.h"
#include "tessera/ir/solve_extents.h"
#include "tessera/kernels/data_sized.h"
#include "tessera/ops/op.h"
#include "tessera/runtime/input_sizes.h"
#include "tessera/spmd/layout/equal_extents.h"

namespace tessera {
inline namespace v1 {
namespace {

// "axes = [0, -1], k = 3"; the first elements of each.
std::string text_of(const Tensors& values) {
  constexpr size_t kMost = 8;
  std::string text;
  for (const auto& [name, tensor] : values) {
    text += fmt::format("{}{} = ", text.empty() ? "" : ", ", name);
    if (!is_integer(tensor.dtype) && tensor.dtype != DType::boolean) {
      text += fmt::format("{} {}", name_of(tensor.dtype), to_string(Shape(tensor.dims.begin(), tensor.dims.end())));
      continue;
    }
    std::vector<int64_t> elements = tensor.to_int64();
    const bool more = elements.size() > kMost;
    elements.resize(std::min(elements.size(), kMost));
    text += tensor.dims.empty() ? std::to_string(elements.front())
                                : fmt::format("[{}{}]", fmt::join(elements, ", "), more ? ", …" : "");
  }
  return text;
}

std::vector<KnownExtent> known_extents(const Graph& graph, const Tensors& inputs) {
  std::vector<KnownExtent> extents;
  for (const Value* input : graph.inputs) {
    const auto given = inputs.find(input->name);
    if (given == inputs.end() || !input->has_shape() || input->rank() != given->second.dims.size()) continue;
    for (size_t d = 0; d < input->rank(); ++d) extents.push_back({input->shape()[d], given->second.dims[d]});
  }
  return extents;
}

// The sizes of a graph's symbols for inputs of these shapes, as far as they say them.
SymbolSizes sizes_at(const Graph& graph, const Tensors& inputs) {
  SymbolSizes sizes;
  for (const auto& [symbol, found] : solve_extents(known_extents(graph, inputs))) sizes[symbol] = found.size;
  return sizes;
}

// Those of the symbols that must be known.
SymbolSizes needed_sizes(const std::set<std::string>& symbols, const SymbolSizes& sizes) {
  SymbolSizes needed;
  for (const std::string& symbol : symbols) {
    const auto size = sizes.find(symbol);
    if (size == sizes.end())
      fail("shapes",
           "the size of '{}' must be known before the model is compiled, but the inputs' extents do not give it; "
           "replace it in the model by a number",
           symbol);
    needed.insert(*size);
  }
  return needed;
}

// What branches and loops of a model take to be equal of its symbols.
std::vector<spmd::ExtentEquality> equal_in_regions(const Model& model) {
  std::vector<spmd::ExtentEquality> equal;
  if (!has_regions(model.impl().model)) return equal;
  for (const auto& node : model.impl().rewritten().graph->nodes())
    if (node->domain == flow::kDomain)
      for (spmd::ExtentEquality& found : spmd::equal_extents_of(*node, ops::op_of(*node).rule(*node)))
        equal.push_back(std::move(found));
  return equal;
}

// The symbols of these of which sizes say otherwise.
SymbolSizes unlike(const std::vector<spmd::ExtentEquality>& equal, const SymbolSizes& sizes) {
  SymbolSizes found;
  for (const spmd::ExtentEquality& equality : equal) {
    std::set<std::string> symbols;
    for (const Expr* extent : {&equality.a, &equality.b}) extent->collect_symbols(symbols);
    if (!std::all_of(symbols.begin(), symbols.end(), [&](const auto& name) { return sizes.contains(name); })) continue;
    if (equality.a.evaluate(sizes) == equality.b.evaluate(sizes)) continue;
    for (const std::string& name : symbols) found.emplace(name, sizes.at(name));
  }
  return found;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && std::equal(a.data, a.data + a.bytes, b.data, b.data + b.bytes);
}

}  // namespace

std::vector<std::string> Model::value_inputs() const {
  std::vector<std::string> names;
  for (const compiler::Segment& segment : impl_->segments())
    for (const std::string& name : segment.values) {
      const Value* input = impl_->model.graph->find(name);
      if (input && input->kind == ValueKind::input && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
  return names;
}

std::vector<std::string> Model::size_symbols() const {
  const std::set<std::string>& sizes = impl_->segments().front().sizes;  // of a model that is one part
  return {sizes.begin(), sizes.end()};
}

Model Model::with_needed_sizes(const SymbolSizes& sizes) const {
  Model sized = *this;
  std::optional<SymbolSizes> all;
  for (std::vector<std::string> symbols; symbols = sized.size_symbols(), !symbols.empty();) {
    if (!all) all = complete(sizes);
    sized = sized.with_sizes(needed_sizes({symbols.begin(), symbols.end()}, *all));
  }
  return sized;
}

Model Model::with_values(const Tensors& values) const {
  return api::model_of(*this, compiler::with_values(impl_->model, values));
}

bool Model::runs_in_parts() const {
  return impl_->segments().size() > 1;
}

bool Model::runs_in_parts(const Tensors& inputs) const {
  if (runs_in_parts()) return true;
  if (const std::set<std::string>& needed = impl_->segments().front().sizes; !needed.empty()) {
    const SymbolSizes known = sizes_at(*impl_->model.graph, inputs);
    // A run refuses inputs that do not say them.
    const bool all =
        std::all_of(needed.begin(), needed.end(), [&](const auto& symbol) { return known.contains(symbol); });
    return all && with_sizes(needed_sizes(needed, known)).runs_in_parts(inputs);
  }
  const SymbolSizes sizes = unlike(equal_in_regions(*this), sizes_at(*impl_->model.graph, inputs));
  return !sizes.empty() && with_sizes(sizes).runs_in_parts();
}

std::string Model::why_in_parts() const {
  return impl_->why_in_parts();
}

struct ModelSession::Impl {
  using Types = api::Types;

  /// A model at sizes that its program does not take, in parts; null: it has none there, either.
  struct AtSizes {
    SymbolSizes sizes;
    std::unique_ptr<Impl> parts;
  };
  /// A part compiled for some values and sizes, and for inputs of some types. If it has parts of its own, they are in
  /// `parts`.
  struct Made {
    Tensors values;
    Types types;
    SymbolSizes sizes;
    Model model;
    std::optional<Program> program = std::nullopt;
    std::optional<Session> session = std::nullopt;
    std::unique_ptr<Impl> parts = nullptr;
    std::optional<std::vector<spmd::ExtentEquality>> equal = std::nullopt;  ///< in regions; found when it first runs
    std::list<AtSizes> at_sizes = {};                                       ///< the latest first
  };
  struct Loop;
  struct Part {
    const compiler::Segment* segment;  ///< of `model`
    std::list<Made> made = {};         ///< the last used first
    std::map<const compiler::Between*, std::unique_ptr<Loop>> loops = {};
  };
  /// A loop that runs after a part.
  struct Loop {
    Part body;
    Types found;  ///< as run_stepped() wants them
  };

  Model model;
  Mesh mesh;
  Plan plan;
  CompileOptions options;
  SessionOptions session;
  std::optional<Made> whole;  ///< of a model that is compiled before it runs
  std::vector<Part> parts;
  int depth = 0;  ///< how many models it is a part of
  std::vector<Program> ran;
  mutable std::mutex running;

  static std::unique_ptr<Impl> begun(const Model& model, const Mesh& mesh, const Plan& plan,
                                     const CompileOptions& options, const SessionOptions& session, int depth = 0) {
    constexpr int kMostDepth = 100;
    check(depth < kMostDepth, "a part that has parts has fewer than the whole");
    auto impl = std::make_unique<Impl>();
    impl->depth = depth;
    impl->model = model;
    impl->mesh = mesh;
    impl->plan = plan;
    impl->options = options;
    impl->session = session;
    impl->begin();
    return impl;
  }

  void begin() {
    if (!plan.states.empty()) {
      model = model.with_states(plan.states);
      plan.states.clear();
    }
    const std::vector<compiler::Segment>& segments = model.impl().segments();
    if (segments.size() == 1 && segments.front().values.empty() && segments.front().sizes.empty()) {
      Program program = compile(model, mesh, plan, options);
      whole.emplace(Made{{}, {}, {}, model, program, Session(program, session)});
      return;
    }
    if (segments.size() > 1) {
      if (session.connection)
        fail("run",
             "'{}' has shapes that depend on computed data, so that it runs in parts, which processes cannot do yet; "
             "run it on ranks of one process",
             model.path().string());
      if (!plan.places.empty())
        fail("place", "'{}' runs in parts, whose nodes cannot be placed yet; leave out the places",
             model.path().string());
    }
    for (const compiler::Segment& segment : segments) parts.push_back({&segment});
  }

  // The plan, as far as it is about this part.
  Plan plan_for(const Model& part) const {
    Plan own = plan;
    const std::vector<std::string> symbols = part.symbols(), all = model.symbols();
    std::erase_if(own.shapes, [&](const auto& size) {
      return std::find(symbols.begin(), symbols.end(), size.first) == symbols.end() &&
             std::find(all.begin(), all.end(), size.first) != all.end();
    });
    if (parts.size() == 1) return own;
    const Graph& graph = *part.impl().model.graph;
    const auto is_elsewhere = [&](const Plan::Annotation& annotation) {
      const auto request = compiler::AnnotationRequest::parse(annotation.text, annotation.by);
      const auto means = [&](const Graph& in, bool with_constants) {
        return std::any_of(in.values().begin(), in.values().end(), [&](const auto& value) {
          return (with_constants || value->kind != ValueKind::constant) && glob_matches(request.pattern, value->name);
        });
      };
      const auto means_in_body = [&](const Part& each) {
        return std::any_of(each.segment->after.begin(), each.segment->after.end(), [&](const auto& between) {
          return between.loop && means(*between.loop->body.model.graph, true);
        });
      };
      return !means(graph, false) &&
             (means(*model.impl().model.graph, true) || std::any_of(parts.begin(), parts.end(), means_in_body));
    };
    std::erase_if(own.annotations, is_elsewhere);
    std::erase_if(own.storage, is_elsewhere);
    return own;
  }

  Made& made_for(Part& part, const Tensors& values, const Types& types, const SymbolSizes& sizes) {
    constexpr size_t kMost = 8;
    const auto fits = [&](const Made& made) {
      return made.types == types && made.sizes == sizes &&
             std::equal(values.begin(), values.end(), made.values.begin(), made.values.end(),
                        [](const auto& a, const auto& b) { return same(a.second, b.second); });
    };
    auto found = std::find_if(part.made.begin(), part.made.end(), fits);
    if (found == part.made.end()) {
      part.made.push_front(make(part, values, types, sizes));
      if (part.made.size() > kMost) part.made.pop_back();
      found = part.made.begin();
    }
    part.made.splice(part.made.begin(), part.made, found);
    return part.made.front();
  }

  Made make(const Part& part, const Tensors& values, const Types& types, const SymbolSizes& sizes) const {
    try {
      OnnxModel sized = part.segment->model.clone();
      for (const auto& [name, type] : types) sized.graph->find(name)->type = type;
      set_sizes(*sized.graph, sizes);
      const Model own = api::model_of(model, compiler::with_values(sized, values));
      if (own.runs_in_parts() || !own.value_inputs().empty() || !own.size_symbols().empty())
        return {.values = values,
                .types = types,
                .sizes = sizes,
                .model = own,
                .parts = begun(own, mesh, plan_for(own), options, session, depth + 1)};
      Program program = compile(own, mesh, plan_for(own), options);
      SessionOptions asked = session;
      const std::vector<StateInfo> states = program.states();
      if (!part.made.empty() && std::any_of(states.begin(), states.end(), [](const auto& s) { return s.changes; }))
        asked.share_states = &*part.made.back().session;
      return {values, types, sizes, own, program, Session(program, asked)};
    } catch (const Error& error) {
      if (values.empty() && sizes.empty()) throw;
      std::string where = text_of(values);
      for (const auto& [symbol, size] : sizes)
        where += fmt::format("{}{} = {}", where.empty() ? "" : ", ", symbol, size);
      throw Error(error.kind(), "inputs", fmt::format("the model does not run where {}: {}", where, error.what()));
    }
  }

  // Where a branch or loop takes two symbols for one size that differ: the parts that run there; null: there are none.
  Impl* parts_at(Made& made, const Tensors& inputs) const {
    constexpr size_t kMost = 8;
    if (session.connection) return nullptr;
    if (!made.equal) made.equal = equal_in_regions(made.model);
    const SymbolSizes sizes = unlike(*made.equal, sizes_at(*made.model.impl().model.graph, inputs));
    if (sizes.empty()) return nullptr;
    auto known = std::find_if(made.at_sizes.begin(), made.at_sizes.end(),
                              [&](const AtSizes& other) { return other.sizes == sizes; });
    if (known == made.at_sizes.end()) {
      const Model sized = made.model.with_sizes(sizes);
      Plan own = plan_for(made.model);
      for (const auto& [symbol, size] : sizes) own.shapes.erase(symbol);
      std::unique_ptr<Impl> parts;
      if (sized.runs_in_parts()) parts = begun(sized, mesh, own, options, session, depth + 1);
      known = made.at_sizes.insert(made.at_sizes.begin(), {sizes, std::move(parts)});
      if (made.at_sizes.size() > kMost) made.at_sizes.pop_back();
    }
    made.at_sizes.splice(made.at_sizes.begin(), made.at_sizes, known);
    return known->parts.get();
  }

  void require_inputs(const Tensors& inputs) const {
    const std::vector<TensorInfo> ports = model.inputs();
    std::vector<std::string> names;
    for (const TensorInfo& port : ports) {
      names.push_back(port.name);
      const auto given = inputs.find(port.name);
      if (given == inputs.end())
        fail("inputs", "input '{}' ({} [{}]) is missing; give an array of that name", port.name, name_of(port.dtype),
             fmt::join(port.shape, ", "));
      if (given->second.dtype != port.dtype || given->second.dims.size() != port.shape.size())
        fail("inputs", "input '{}' is {} with {} dimensions, but the model needs {} [{}]", port.name,
             name_of(given->second.dtype), given->second.dims.size(), name_of(port.dtype), fmt::join(port.shape, ", "));
    }
    for (const auto& given : inputs)
      if (std::find(names.begin(), names.end(), given.first) == names.end())
        fail("inputs", "the model has no input '{}'; its inputs are: {}", given.first, fmt::join(names, ", "));
    runtime::InputSizes sizes;
    for (const Value* input : model.impl().model.graph->inputs)
      if (input->has_shape()) sizes.add(input->name, input->shape(), inputs.at(input->name).dims);
    sizes.require_expressions();
  }

  Tensors run(const Tensors& inputs) {
    const std::lock_guard lock(running);
    ran.clear();
    Types types;
    if (whole) {
      if (Impl* parts = parts_at(*whole, inputs)) {
        require_inputs(inputs);
        Tensors outputs;
        run_parts_of(*parts, inputs, outputs, types);
        return outputs;
      }
      ran.push_back(*whole->program);
      return whole->session->run(inputs);
    }
    require_inputs(inputs);
    return run_parts(inputs, types);
  }

  // `types` gets those of what parts gave.
  Tensors run_parts(const Tensors& inputs, Types& types) {
    Tensors known = inputs;
    for (Part& part : parts) {
      run_program(part, known, types);
      for (const compiler::Between& between : part.segment->after) run_between(part, between, known, types);
    }
    Tensors outputs;
    for (const TensorInfo& port : model.outputs())
      if (const auto made = known.find(port.name); made != known.end()) outputs.insert(*made);
    return outputs;
  }

  void run_program(Part& part, Tensors& known, Types& types) {
    const Graph& graph = *part.segment->model.graph;
    if (graph.outputs.empty()) return;
    Tensors values, given;
    Types given_types;
    for (const Value* input : graph.inputs) {
      const bool is_value = std::find(part.segment->values.begin(), part.segment->values.end(), input->name) !=
                            part.segment->values.end();
      (is_value ? values : given).emplace(input->name, known.at(input->name));
      if (const auto type = types.find(input->name); type != types.end()) given_types.insert(*type);
    }
    add_own_symbols(graph, given, given_types);
    // What a value's shape is does not matter beside its elements.
    for (const auto& [name, tensor] : values)
      if (given_types.contains(name)) given_types[name] = {tensor.dtype, Shape(tensor.dims.begin(), tensor.dims.end())};
    const SymbolSizes sizes =
        part.segment->sizes.empty() ? SymbolSizes() : needed_sizes(part.segment->sizes, sizes_at(graph, known));
    Made& made = made_for(part, values, given_types, sizes);
    if (made.parts) return run_parts_of(*made.parts, given, known, types);
    if (Impl* parts = parts_at(made, given)) return run_parts_of(*parts, given, known, types);
    ran.push_back(*made.program);
    for (auto& [name, tensor] : made.session->run(given)) known[name] = tensor;
    const auto& programs = *made.program->impl().programs;
    const auto& ports = made.program->impl().program->outputs;
    for (size_t i = 0; i < ports.size(); ++i)
      types[ports[i].name] = bindable(ports[i].name, programs.output(i).placement->global);
  }

  void run_parts_of(Impl& inner, const Tensors& given, Tensors& known, Types& types) {
    inner.ran.clear();
    Types own;
    for (auto& [name, tensor] : inner.run_parts(given, own)) {
      const auto type = own.find(name);
      types[name] =
          type == own.end() ? TensorType{tensor.dtype, Shape(tensor.dims.begin(), tensor.dims.end())} : type->second;
      known[name] = tensor;
    }
    ran.insert(ran.end(), inner.ran.begin(), inner.ran.end());
  }

  // An extent that is an expression becomes a symbol of its own, since a part need not have the symbols in it.
  TensorType bindable(const std::string& name, TensorType type) const {
    std::vector<std::string> taken;  // asked for only where there is an expression
    for (size_t d = 0; d < type.shape->size(); ++d) {
      Expr& extent = (*type.shape)[d];
      if (extent.is_constant() || extent.as_symbol()) continue;
      if (taken.empty()) taken = model.symbols();
      std::string symbol = fmt::format("{}_{}", name, d);
      while (std::find(taken.begin(), taken.end(), symbol) != taken.end()) symbol += '_';
      extent = Expr::symbol(symbol);
    }
    return type;
  }

  // Extents of which this part's inputs do not say the symbols get symbols of their own: past + s, where others take
  // past and s. `types` are the other inputs'.
  void add_own_symbols(const Graph& graph, const Tensors& given, Types& types) const {
    const auto is_open = [](const Value* input) {
      return input->has_shape() && std::any_of(input->shape().begin(), input->shape().end(), [](const Expr& extent) {
               return !extent.is_constant() && !extent.as_symbol();
             });
    };
    if (std::none_of(graph.inputs.begin(), graph.inputs.end(), is_open)) return;
    const SolvedSizes solved = solve_extents(known_extents(graph, given));
    for (const Value* input : graph.inputs) {
      if (!given.contains(input->name) || types.contains(input->name) || !is_open(input)) continue;
      const auto is_unsaid = [&](const Expr& extent) {
        const auto left = with_known(extent, solved);
        return left && !left->is_constant() && !says_a_size(*left);
      };
      if (std::any_of(input->shape().begin(), input->shape().end(), is_unsaid))
        types.emplace(input->name, bindable(input->name, input->type));
    }
  }

  // As programs know it: extents that differ between runs are symbols.
  Shape shape_of(const std::string& name, const Tensor& tensor, const Types& types) const {
    if (const auto known = types.find(name); known != types.end()) return *known->second.shape;
    const Value* value = model.impl().model.graph->find(name);
    const bool is_input = value && value->kind == ValueKind::input && value->has_shape();
    return is_input ? value->shape() : Shape(tensor.dims.begin(), tensor.dims.end());
  }

  void run_between(Part& part, const compiler::Between& between, Tensors& known, Types& types) {
    std::vector<Tensor> operands;
    std::vector<TensorType> operand_types;
    for (const std::string& name : between.operands) {
      const auto constant = part.segment->constants.find(name);
      operands.push_back(name.empty()                                ? Tensor()
                         : constant != part.segment->constants.end() ? constant->second
                                                                     : known.at(name));
      operand_types.push_back({operands.back().dtype, shape_of(name, operands.back(), types)});
    }
    std::vector<TensorType> result_types;
    std::vector<Tensor> results = between.loop
                                      ? run_loop(part, between, operands, operand_types, known, types, result_types)
                                      : kernels::run_data_sized(between.node, operands);
    for (size_t i = 0; i < between.results.size(); ++i) {
      const std::string& name = between.results[i];
      if (name.empty() || i >= results.size()) continue;
      types[name] = between.loop
                        ? result_types[i]
                        : TensorType{results[i].dtype,
                                     kernels::data_sized_shape(between.node, i, results[i].dims,
                                                               *operand_types[0].shape, Expr::symbol(name + "_count"))};
      known[name] = std::move(results[i]);
    }
  }

  std::vector<Tensor> run_loop(Part& part, const compiler::Between& between, const std::vector<Tensor>& operands,
                               const std::vector<TensorType>& operand_types, const Tensors& known, const Types& types,
                               std::vector<TensorType>& result_types) {
    std::unique_ptr<Loop>& loop = part.loops[&between];
    if (!loop) loop = std::make_unique<Loop>(Loop{{&between.loop->body}, {}});
    const auto run_body = [&](Tensors& inside, Types& inside_types) { run_program(loop->body, inside, inside_types); };
    return api::run_stepped(*between.loop, between.node, operands, operand_types, known, types, run_body, loop->found,
                            result_types);
  }
};

ModelSession::ModelSession(const Model& model, const Mesh& mesh, const Plan& plan, const CompileOptions& options,
                           const SessionOptions& session)
    : impl_(Impl::begun(model, mesh, plan, options, session)) {}
ModelSession::~ModelSession() = default;
ModelSession::ModelSession(ModelSession&&) noexcept = default;
ModelSession& ModelSession::operator=(ModelSession&&) noexcept = default;

Tensors ModelSession::run(const Tensors& inputs) {
  return impl_->run(inputs);
}

std::vector<Program> ModelSession::programs() const {
  const std::lock_guard lock(impl_->running);
  return impl_->ran;
}

}  // namespace v1
}  // namespace tessera
