#include "tessera/parts/runner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ir/glob.h"
#include "tessera/ir/set_sizes.h"
#include "tessera/kernels/data_sized.h"
#include "tessera/runtime/input_sizes.h"

namespace tessera::parts {
namespace {

constexpr size_t kMostMade = 8;     // programs of a part, for different values
constexpr size_t kMostAtSizes = 8;  // sets of sizes that a program does not support

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

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && std::equal(a.data, a.data + a.bytes, b.data, b.data + b.bytes);
}

bool steps_states(const compiler::CompiledProgram& program) {
  const std::vector<Value*> states = program.program->graph->values_of(ValueKind::state);
  return std::any_of(states.begin(), states.end(), [](const Value* state) { return state->changing; });
}

// Copies an output into memory of the caller. Throws a user error for one of another type or shape.
void copy_output(const std::string& name, Tensors& outputs, Tensor& memory) {
  const auto made = outputs.find(name);
  if (made == outputs.end()) fail("outputs", "the model has no output '{}'", name);
  Tensor& output = made->second;
  if (memory.dtype != output.dtype || memory.dims != output.dims)
    fail("outputs",
         "the output '{}' is {} [{}], but the memory given for it is for {} [{}]; give a tensor of the output's type",
         name, name_of(output.dtype), fmt::join(output.dims, ", "), name_of(memory.dtype),
         fmt::join(memory.dims, ", "));
  memory.require_whole(name);
  if (output.bytes > 0) std::memcpy(memory.mutable_data(), output.data, output.bytes);
  output = memory;
}

// Whether an annotation matches one of these values of the graph.
bool means(const compiler::AnnotationRequest& request, const Graph& graph, bool with_constants) {
  return std::any_of(graph.values().begin(), graph.values().end(), [&](const auto& value) {
    return (with_constants || value->kind != ValueKind::constant) && glob_matches(request.pattern, value->name);
  });
}

}  // namespace

Runner::Runner(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options, Load load,
               bool over_processes)
    : Runner(std::move(model), std::move(options), std::move(load), over_processes, 0,
             std::make_shared<std::shared_ptr<runtime::StateStore>>()) {}

Runner::Runner(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options, Load load_program,
               bool over_processes, int depth, SharedStore states)
    : model_(std::move(model)),
      options_(std::move(options)),
      load_(std::move(load_program)),
      over_processes_(over_processes),
      depth_(depth),
      states_(std::move(states)) {
  constexpr int kMostDepth = 100;
  check(depth_ < kMostDepth, "parts within parts end");
  if (model_->is_one_program()) {
    whole_.emplace(Made{.model = model_, .loaded = load(model_, options_)});
    return;
  }
  if (model_->runs_in_parts()) {
    if (over_processes_)
      fail(
          "run",
          "'{}' has shapes that depend on computed data, so it runs in parts, which is not supported across processes; "
          "run it on ranks of one process",
          model_->path.string());
    if (!options_.places.empty())
      fail("place", "'{}' runs in parts, and placing nodes of parts is not supported; remove the places",
           model_->path.string());
  }
  for (const Segment& segment : model_->segments()) parts_.push_back({&segment});
}

std::unique_ptr<Runner> Runner::nested(std::shared_ptr<const SegmentedModel> model,
                                       compiler::ProgramOptions options) const {
  return std::unique_ptr<Runner>(
      new Runner(std::move(model), std::move(options), load_, over_processes_, depth_ + 1, states_));
}

Runner::Loaded Runner::load(const std::shared_ptr<const SegmentedModel>& model,
                            const compiler::ProgramOptions& options) const {
  auto program = std::make_shared<compiler::CompiledProgram>(compiler::compile_program(model, options));
  if (!steps_states(*program)) return {program, load_(*program, nullptr)};
  auto ranks = load_(*program, *states_);
  *states_ = ranks->executor().store();
  return {program, std::move(ranks)};
}

// The options that concern this part.
compiler::ProgramOptions Runner::options_for(const SegmentedModel& part) const {
  compiler::ProgramOptions own = options_;
  const std::set<std::string> symbols = compiler::symbols_of(part.model), all = compiler::symbols_of(model_->model);
  std::erase_if(own.shapes,
                [&](const auto& size) { return !symbols.contains(size.first) && all.contains(size.first); });
  if (parts_.size() == 1) return own;
  const auto is_elsewhere = [&](const compiler::AnnotationRequest& request) {
    const auto means_in_body = [&](const Part& each) {
      return std::any_of(each.segment->after.begin(), each.segment->after.end(), [&](const Between& between) {
        return between.loop && means(request, *between.loop->body.model.graph, true);
      });
    };
    return !means(request, *part.model.graph, false) &&
           (means(request, *model_->model.graph, true) || std::any_of(parts_.begin(), parts_.end(), means_in_body));
  };
  std::erase_if(own.annotations, is_elsewhere);
  std::erase_if(own.storage, is_elsewhere);
  return own;
}

Runner::Given Runner::given_for(const Part& part, const Tensors& known, const Types& types) const {
  const Segment& segment = *part.segment;
  const Graph& graph = *segment.model.graph;
  Given given;
  for (const Value* input : graph.inputs) {
    const bool is_value = std::find(segment.values.begin(), segment.values.end(), input->name) != segment.values.end();
    (is_value ? given.values : given.inputs).emplace(input->name, known.at(input->name));
    if (const auto type = types.find(input->name); type != types.end()) given.types.insert(*type);
  }
  add_own_symbols(graph, given.inputs, given.types);
  // Only a value's elements are shown, not its shape.
  for (const auto& [name, tensor] : given.values)
    if (given.types.contains(name)) given.types[name] = exact_type(tensor);
  if (!segment.sizes.empty()) given.sizes = needed_sizes(segment.sizes, sizes_at(graph, known));
  return given;
}

Runner::Made& Runner::made_for(Part& part, const Given& given) {
  const auto fits = [&](const Made& made) {
    return made.types == given.types && made.sizes == given.sizes &&
           std::equal(given.values.begin(), given.values.end(), made.values.begin(), made.values.end(),
                      [](const auto& a, const auto& b) { return same(a.second, b.second); });
  };
  auto found = std::find_if(part.made.begin(), part.made.end(), fits);
  if (found == part.made.end()) {
    part.made.push_front(make(part, given));
    if (part.made.size() > kMostMade) part.made.pop_back();
    found = part.made.begin();
  }
  part.made.splice(part.made.begin(), part.made, found);
  return part.made.front();
}

Runner::Made Runner::make(const Part& part, const Given& given) const {
  try {
    OnnxModel sized = part.segment->model.clone();
    for (const auto& [name, type] : given.types) sized.graph->find(name)->type = type;
    set_sizes(*sized.graph, given.sizes);
    Made made{given.values, given.types, given.sizes, model_->with(with_values(sized, given.values))};
    const compiler::ProgramOptions options = options_for(*made.model);
    if (!made.model->is_one_program()) {
      made.parts = nested(made.model, options);
      return made;
    }
    made.loaded = load(made.model, options);
    return made;
  } catch (const Error& error) {
    if (given.values.empty() && given.sizes.empty()) throw;
    std::string where = text_of(given.values);
    for (const auto& [symbol, size] : given.sizes)
      where += fmt::format("{}{} = {}", where.empty() ? "" : ", ", symbol, size);
    throw Error(error.kind(), "inputs", fmt::format("the model does not run where {}: {}", where, error.what()));
  }
}

// For sizes where two symbols differ that a branch or loop assumes to be equal: the parts to run; null if there are
// none.
Runner* Runner::parts_at(Made& made, const Tensors& inputs) const {
  if (over_processes_) return nullptr;
  if (!made.equal) made.equal.emplace(*made.model);
  const Symbols sizes = made.equal->contradicted_by(sizes_at(*made.model->model.graph, inputs));
  if (sizes.empty()) return nullptr;
  auto known = std::find_if(made.at_sizes.begin(), made.at_sizes.end(),
                            [&](const AtSizes& other) { return other.sizes == sizes; });
  if (known == made.at_sizes.end()) {
    const auto sized = made.model->with_sizes(sizes);
    std::unique_ptr<Runner> parts;
    if (sized->runs_in_parts()) {
      compiler::ProgramOptions own = options_for(*made.model);
      for (const auto& [symbol, size] : sizes) own.shapes.erase(symbol);
      parts = nested(sized, std::move(own));
    }
    known = made.at_sizes.insert(made.at_sizes.begin(), {sizes, std::move(parts)});
    if (made.at_sizes.size() > kMostAtSizes) made.at_sizes.pop_back();
  }
  made.at_sizes.splice(made.at_sizes.begin(), made.at_sizes, known);
  return known->parts.get();
}

void Runner::require_inputs(const Tensors& inputs) const {
  std::vector<std::string> names;
  runtime::InputSizes sizes;
  for (const Value* input : model_->model.graph->inputs) {
    names.push_back(input->name);
    const auto given = inputs.find(input->name);
    const std::string type =
        fmt::format("{} {}", name_of(input->dtype()), input->has_shape() ? to_string(input->shape()) : "of any shape");
    if (given == inputs.end())
      fail("inputs", "input '{}' ({}) is missing; give an array of that name", input->name, type);
    if (given->second.dtype != input->dtype() ||
        (input->has_shape() && given->second.dims.size() != input->shape().size()))
      fail("inputs", "input '{}' is {} with {}, but the model needs {}", input->name, name_of(given->second.dtype),
           counted(given->second.dims.size(), "dimension"), type);
    given->second.require_whole(input->name);
    if (input->has_shape()) sizes.add(input->name, input->shape(), given->second.dims);
  }
  for (const auto& given : inputs)
    if (std::find(names.begin(), names.end(), given.first) == names.end())
      fail("inputs", "the model has no input '{}'; its inputs are: {}", given.first, fmt::join(names, ", "));
  sizes.require_expressions();
}

Tensors Runner::run(const Tensors& inputs, const runtime::RunLimits& limits, Tensors given) {
  std::unique_lock lock(running_);
  ran_.clear();
  limits_ = limits;
  if (whole_ && !parts_at(*whole_, inputs)) {
    ran_.push_back(latest_ = whole_->loaded);
    const std::shared_ptr<launch::LoadedProgram> ranks = whole_->loaded.ranks;
    lock.unlock();  // a Session's options limit how many runs go on at once
    return ranks->recorded([&](runtime::Executor& executor) { return executor.run(inputs, limits, std::move(given)); });
  }
  require_inputs(inputs);
  Tensors outputs;
  for (bool done = false; !done;) {
    try {
      outputs = run_in_parts(inputs);
      done = true;
    } catch (const Error& error) {  // no state has changed
      ran_.clear();
      latest_ = {};
      if (over_processes_ || error.kind() != ErrorKind::user || error.stage() != "memory" || !drop_one()) throw;
    }
  }
  for (auto& [name, memory] : given) copy_output(name, outputs, memory);
  return outputs;
}

// Drops a program that no part used last; false if there is none.
bool Runner::drop_one() {
  return std::any_of(parts_.begin(), parts_.end(), [](Part& part) { return drop_one_of(part); });
}

bool Runner::drop_one_of(Part& part) {
  if (part.made.size() > 1) {
    part.made.pop_back();
    return true;
  }
  return std::any_of(part.made.begin(), part.made.end(),
                     [](const Made& made) { return made.parts && made.parts->drop_one(); }) ||
         std::any_of(part.loops.begin(), part.loops.end(),
                     [](const auto& loop) { return loop.second && drop_one_of(loop.second->body); });
}

Tensors Runner::run_in_parts(const Tensors& inputs) {
  Types types;
  if (!whole_) return run_parts(inputs, types);
  Tensors outputs;
  run_nested(*parts_at(*whole_, inputs), inputs, outputs, types);
  return outputs;
}

std::vector<Runner::Loaded> Runner::ran() const {
  const std::lock_guard lock(running_);
  return ran_;
}

Runner::Loaded Runner::prepare(const Tensors& inputs) {
  const std::lock_guard lock(running_);
  Tensors given;
  const Loaded one = one_program_for(inputs, given);
  if (!one.ranks) return {};
  latest_ = one;
  one.ranks->recorded([&](runtime::Executor& executor) { executor.prepare(executor.bind_symbols(given)); });
  return one;
}

std::vector<size_t> Runner::peak_bytes(const Tensors& inputs) {
  const std::lock_guard lock(running_);
  Tensors given;
  const Loaded one = one_program_for(inputs, given);
  if (!one.ranks)
    fail("session",
         "'{}' runs in parts, which have no common peak; after a run, process_bytes() is the peak of the last part",
         model_->path.string());
  return peaks_of(one, given);
}

// The program that runs such inputs, and the inputs that it takes. Members are null if the model runs in parts for
// them.
Runner::Loaded Runner::one_program_for(const Tensors& inputs, Tensors& given) {
  if (model_->runs_in_parts() || (whole_ && parts_at(*whole_, inputs))) return {};
  if (whole_) {
    given = inputs;
    return whole_->loaded;
  }
  require_inputs(inputs);
  const Given own = given_for(parts_.front(), inputs, {});
  Made& made = made_for(parts_.front(), own);
  if (made.parts) return made.parts->one_program_for(own.inputs, given);
  if (Runner* parts = parts_at(made, own.inputs)) return parts->one_program_for(own.inputs, given);
  given = own.inputs;
  return made.loaded;
}

std::vector<size_t> Runner::peaks_of(const Loaded& loaded, const Tensors& given) {
  return loaded.ranks->recorded(
      [&](runtime::Executor& executor) { return executor.peak_bytes(executor.bind_symbols(given)); });
}

Runner::Loaded Runner::latest() const {
  const std::lock_guard lock(running_);
  return whole_ ? whole_->loaded : latest_;
}

// `types` gets the types of the parts' results.
Tensors Runner::run_parts(const Tensors& inputs, Types& types) {
  Tensors known = inputs;
  for (Part& part : parts_) {
    run_program(part, known, types);
    for (const Between& between : part.segment->after) run_between(part, between, known, types);
  }
  Tensors outputs;
  for (const Value* port : model_->model.graph->outputs)
    if (const auto made = known.find(port->name); made != known.end()) outputs.insert(*made);
  return outputs;
}

void Runner::run_program(Part& part, Tensors& known, Types& types) {
  if (part.segment->model.graph->outputs.empty()) return;
  const Given given = given_for(part, known, types);
  Made& made = made_for(part, given);
  if (made.parts) return run_nested(*made.parts, given.inputs, known, types);
  if (Runner* parts = parts_at(made, given.inputs)) return run_nested(*parts, given.inputs, known, types);
  ran_.push_back(latest_ = made.loaded);
  const auto run = [&](runtime::Executor& executor) { return executor.run(given.inputs, limits_); };
  for (auto& [name, tensor] : made.loaded.ranks->recorded(run)) known[name] = tensor;
  const compiler::CompiledProgram& program = *made.loaded.program;
  const auto& ports = program.program->outputs;
  for (size_t i = 0; i < ports.size(); ++i)
    types[ports[i].name] = bindable(ports[i].name, program.programs->output(i).placement->global);
}

void Runner::run_nested(Runner& inner, const Tensors& given, Tensors& known, Types& types) {
  inner.ran_.clear();
  inner.limits_ = limits_;
  Types own;
  for (auto& [name, tensor] : inner.run_parts(given, own)) {
    const auto type = own.find(name);
    types[name] = type == own.end() ? exact_type(tensor) : type->second;
    known[name] = tensor;
  }
  ran_.insert(ran_.end(), inner.ran_.begin(), inner.ran_.end());
  latest_ = inner.latest_;
}

// An extent that is an expression becomes a new symbol, since the part may lack the expression's symbols.
TensorType Runner::bindable(const std::string& name, TensorType type) const {
  std::set<std::string> taken;  // computed only if there is an expression
  for (size_t d = 0; d < type.shape->size(); ++d) {
    Expr& extent = (*type.shape)[d];
    if (extent.is_constant() || extent.as_symbol()) continue;
    if (taken.empty()) taken = compiler::symbols_of(model_->model);
    std::string symbol = fmt::format("{}_{}", name, d);
    while (taken.contains(symbol)) symbol += '_';
    extent = Expr::symbol(symbol);
  }
  return type;
}

// Extents whose symbols this part's inputs do not determine get new symbols: for example past + s, unless other inputs
// have past and s. `types` are those of the other inputs.
void Runner::add_own_symbols(const Graph& graph, const Tensors& given, Types& types) const {
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

// The type as programs state it: extents that differ between runs are symbols.
Shape Runner::shape_of(const std::string& name, const Tensor& tensor, const Types& types) const {
  if (const auto known = types.find(name); known != types.end()) return *known->second.shape;
  const Value* value = model_->model.graph->find(name);
  const bool is_input = value && value->kind == ValueKind::input && value->has_shape();
  return is_input ? value->shape() : Shape(tensor.dims.begin(), tensor.dims.end());
}

void Runner::run_between(Part& part, const Between& between, Tensors& known, Types& types) {
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
                                   kernels::data_sized_shape(between.node, i, results[i].dims, *operand_types[0].shape,
                                                             Expr::symbol(name + "_count"))};
    known[name] = std::move(results[i]);
  }
}

std::vector<Tensor> Runner::run_loop(Part& part, const Between& between, const std::vector<Tensor>& operands,
                                     const std::vector<TensorType>& operand_types, const Tensors& known,
                                     const Types& types, std::vector<TensorType>& result_types) {
  std::unique_ptr<Loop>& loop = part.loops[&between];
  if (!loop) loop = std::make_unique<Loop>(Loop{{&between.loop->body}, {}});
  const auto run_body = [&](Tensors& inside, Types& inside_types) { run_program(loop->body, inside, inside_types); };
  return run_stepped(*between.loop, between.node, operands, operand_types, known, types, run_body, loop->found,
                     result_types);
}

}  // namespace tessera::parts
