#include "tessera/program_io/join_ranks.h"

#include <algorithm>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/dialect/group.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/glob.h"
#include "tessera/program_io/lone_model.h"
#include "tessera/program_io/parallel_for.h"
#include "tessera/program_io/rank_graph.h"
#include "tessera/rewrite/edit.h"

namespace tessera::program_io {
namespace {

// A model's input or output, as stated by the first rank that has it.
struct JoinedPort {
  std::string name;
  TensorType type;
  int rank = 0;
};

class Joiner {
 public:
  Joiner(const std::vector<SplitModel>& models, Mesh mesh, const JoinOptions& options)
      : options_(options), mesh_(std::move(mesh)) {
    if (models.empty()) fail("join", "there are no models; give one for every rank, or one for all");
    for (const SplitModel& model : models) {
      names_.push_back(model.name);
      sources_.push_back(model.model->clone());
      files_.insert(files_.end(), model.files.begin(), model.files.end());
      open_parallel_for(sources_.back(), names_.back());
      by_rank_ |= !sources_.back().functions.empty() || asks_for_rank(sources_.back());
      flatten(sources_.back());
    }
    by_rank_ |= models.size() > 1 || !options.own.empty();
    if (mesh_.axes().empty() && models.size() > 1)
      mesh_ = Mesh(std::vector<MeshAxis>{{the_only_axis(), static_cast<int64_t>(models.size())}});
    if (models.size() > 1 && static_cast<int64_t>(models.size()) != mesh_.size())
      fail("join", "there are {}, and the mesh {} has {}; give one for every rank", counted(models.size(), "model"),
           mesh_.str(), counted(mesh_.size(), "rank"));
  }

  std::shared_ptr<const runtime::RankPrograms> run() {
    auto programs = std::make_shared<runtime::RankPrograms>();
    programs->placed = false;
    programs->files = files_;
    const int64_t count = by_rank_ ? mesh_.size() : 1;
    std::vector<OnnxModel> models;
    for (int64_t rank = 0; rank < count; ++rank) models.push_back(settled(rank));
    for (int64_t rank = 0; rank < count; ++rank) collect_ports(*models[rank].graph, static_cast<int>(rank));
    require_own();
    for (int64_t rank = 0; rank < count; ++rank) {
      programs->programs.push_back(std::make_shared<spmd::Program>(program_of(std::move(models[rank]), rank)));
      if (by_rank_) programs->program_of.push_back(static_cast<int>(rank));
    }
    return programs;
  }

 private:
  // If a program is one ParallelFor, its body is the program.
  void open_parallel_for(OnnxModel& model, const std::string& name) {
    const std::optional<Mesh> own = parallel_for_mesh(model, name);
    if (!own) return;
    if (mesh_.axes().empty()) mesh_ = *own;
    model = unwrap_parallel_for(std::move(model), mesh_, name);
  }

  // The mesh that the nodes imply, if it has only one axis.
  std::string the_only_axis() const {
    std::set<std::string> names;
    for (const OnnxModel& model : sources_)
      for (const auto& node : model.graph->nodes())
        if (dialect::communicates(*node)) {
          const std::vector<std::string> axes = spmd::read_collective(*node).axes;
          names.insert(axes.begin(), axes.end());
        }
    return names.size() == 1 ? *names.begin() : "rank";
  }

  OnnxModel settled(int64_t rank) const {
    const bool one_for_all = sources_.size() == 1;
    const std::string& name = names_[one_for_all ? 0 : static_cast<size_t>(rank)];
    OnnxModel model = sources_[one_for_all ? 0 : static_cast<size_t>(rank)].clone();
    require_whole(model, mesh_, rank, one_for_all, name);
    try {
      settle_collectives(model, mesh_, by_rank_ ? std::optional(rank) : std::nullopt);
    } catch (const Error& error) {
      const std::string place = by_rank_ ? fmt::format("{}, of rank {}", name, rank) : name;
      throw Error(error.kind(), "join", fmt::format("{}: {}", place, error.what()));
    }
    for (Value* constant : model.graph->values_of(ValueKind::constant)) constant->data = aligned(constant->data);
    return model;
  }

  // The name of a port that differs between ranks contains its rank.
  void rename_own(Graph& graph, Value* port, int rank) {
    if (std::find(options_.own.begin(), options_.own.end(), port->name) == options_.own.end()) return;
    own_.insert(port->name);
    graph.rename(port, fmt::format("{}@{}", port->name, rank));
  }

  void require_own() const {
    for (const std::string& name : options_.own)
      if (!own_.contains(name)) {
        std::vector<std::string_view> ports;
        for (const auto* list : {&inputs_, &outputs_})
          for (const JoinedPort& port : *list) ports.push_back(port.name);
        fail("join", "no model has an input or output '{}'{}", name, nearest_names(ports, name));
      }
  }

  static JoinedPort* find(std::vector<JoinedPort>& ports, const std::string& name) {
    auto found = std::find_if(ports.begin(), ports.end(), [&](const JoinedPort& port) { return port.name == name; });
    return found == ports.end() ? nullptr : &*found;
  }

  void collect_ports(Graph& graph, int rank) {
    for (Value* input : graph.inputs) {
      rename_own(graph, input, rank);
      const JoinedPort* known = find(inputs_, input->name);
      if (!known)
        inputs_.push_back({input->name, input->type, rank});
      else if (known->type != input->type)
        fail("join",
             "the input '{}' is {}{} on rank {} and {}{} on rank {}; give each its own, as arrays '{}@{}', '{}@{}'",
             input->name, name_of(known->type.dtype), to_string(*known->type.shape), known->rank,
             name_of(input->dtype()), to_string(input->shape()), rank, input->name, known->rank, input->name, rank);
    }
    for (Value* output : graph.outputs) {
      rename_own(graph, output, rank);
      if (!find(outputs_, output->name)) outputs_.push_back({output->name, output->type, rank});
    }
  }

  // Every rank has every port. Inputs that are not in its model are not read. Outputs that its model lacks are on other
  // ranks; rank 0 gets them from the first rank that has them.
  spmd::Program program_of(OnnxModel model, int64_t rank) const {
    spmd::Program program;
    program.mesh = mesh_;
    program.hints = {options_.shapes.begin(), options_.shapes.end()};
    Graph& graph = *model.graph;
    const std::vector<Value*> inputs = graph.inputs, outputs = graph.outputs;
    auto among = [](const std::vector<Value*>& values, const std::string& name) {
      auto found = std::find_if(values.begin(), values.end(), [&](const Value* value) { return value->name == name; });
      return found == values.end() ? nullptr : *found;
    };
    for (const JoinedPort& port : inputs_) {
      Value* own = among(inputs, port.name);
      program.inputs.push_back({port.name, own ? own : graph.add_input(port.name, port.type)});
    }
    for (const JoinedPort& port : outputs_) {
      Value* own = among(outputs, port.name);
      if (own && rank == port.rank && rank != 0) send_to_first(graph, own, port);
      program.outputs.push_back({port.name, own || rank != 0 ? own : received(graph, port)});
    }
    for (const auto* ports : {&program.inputs, &program.outputs})
      for (const spmd::Port& port : *ports)
        if (port.value) place(program, port.value, port.name);
    for (Value* state : graph.values_of(ValueKind::state)) {
      place(program, state, state->name);
      program.initial[state] = state->data;
    }
    graph.verify("join");
    program.graph = std::move(model.graph);
    return program;
  }

  // Each rank has the whole of a tensor of that name.
  static void place(spmd::Program& program, const Value* value, const std::string& name) {
    program.placements[value] = {name, value->type, Sharding::replicated(value->shape())};
  }

  Node* add_message(Graph& graph, Collective kind, std::vector<Value*> operands,
                    const std::vector<std::string>& results, const JoinedPort& port) const {
    Node* node = graph.add_node(traits_of(kind).op, std::move(operands), results, spmd::kCommDomain);
    node->name = "output " + port.name;
    node->attributes =
        spmd::written({.kind = kind, .axes = dialect::all_axes(mesh_), .value = port.name, .dtype = port.type.dtype});
    return node;
  }

  void send_to_first(Graph& graph, Value* value, const JoinedPort& port) const {
    add_message(graph, Collective::send, {value, graph.constant_int64({0}, true)}, {}, port);
  }

  Value* received(Graph& graph, const JoinedPort& port) const {
    Value* peer = graph.constant_int64({port.rank}, true);
    Node* node = add_message(graph, Collective::recv, {peer, rewrite::shape_operand(graph, *port.type.shape)},
                             {port.name}, port);
    node->outputs[0]->type = port.type;
    graph.outputs.push_back(node->outputs[0]);
    return node->outputs[0];
  }

  const JoinOptions& options_;
  Mesh mesh_;
  std::vector<std::string> names_;
  std::vector<OnnxModel> sources_;
  std::vector<uint64_t> files_;
  bool by_rank_ = false;
  std::set<std::string> own_;
  std::vector<JoinedPort> inputs_, outputs_;
};

// Names of the results of collectives that do not state what they move, in order.
std::vector<std::string> unnamed_results(const spmd::Program& program) {
  std::vector<std::string> names;
  for (const auto& node : program.graph->nodes())
    if (dialect::communicates(*node) && node->output() && !node->find_attribute("value"))
      names.push_back(node->output()->name);
  return names;
}

// If the results of all ranks' collectives have the same names, the names show which collectives belong together.
// Otherwise, two collectives of one type that are swapped on a rank would not be noticed.
void name_what_moves(const runtime::RankPrograms& programs) {
  std::multiset<std::string> common;
  for (size_t p = 0; p < programs.programs.size(); ++p) {
    const std::vector<std::string> names = unnamed_results(*programs.programs[p]);
    std::multiset<std::string> sorted(names.begin(), names.end());
    if (p > 0 && sorted != common) return;
    common = std::move(sorted);
  }
  for (const auto& program : programs.programs)
    for (const auto& node : program->graph->nodes())
      if (dialect::communicates(*node) && node->output() && !node->find_attribute("value"))
        node->set("value", node->output()->name);
}

}  // namespace

std::shared_ptr<const runtime::RankPrograms> join_ranks(const std::vector<SplitModel>& models, const Mesh& mesh,
                                                        const JoinOptions& options) {
  auto programs = Joiner(models, mesh, options).run();
  name_what_moves(*programs);
  return programs;
}

}  // namespace tessera::program_io
