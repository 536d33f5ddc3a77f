#include "random/mutate.h"

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/error.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::random {
namespace {

std::unique_ptr<spmd::Program> clone(const spmd::Program& program) {
  return std::make_unique<spmd::Program>(spmd::in_one_graph(program));
}

// The nodes on which a result depends.
bool depends(const Node* node, const Node* on) {
  std::vector<const Node*> open = {node};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Node* next = open.back();
    open.pop_back();
    if (next == on) return true;
    for (const Value* operand : next->inputs)
      if (operand && operand->producer && seen.insert(operand->producer).second) open.push_back(operand->producer);
  }
  return false;
}

class Mutation {
 public:
  Mutation(spmd::Program& program, uint64_t seed) : program_(program), random_(seed) {
    for (const auto& node : graph().nodes())
      if (node->domain == spmd::kCommDomain) nodes_.push_back(node.get());
  }

  std::optional<std::string> run() {
    if (nodes_.empty()) return std::nullopt;
    node_ = nodes_[pick(nodes_.size())];
    switch (pick(5)) {
      case 0:
        return drop();
      case 1:
        return swap();
      case 2:
        return retype();
      case 3:
        return reorder();
      default:
        return misgroup();
    }
  }

 private:
  Graph& graph() { return *program_.graph; }
  size_t pick(size_t count) { return random_() % count; }

  std::optional<std::string> drop() {
    if (node_->op_type == "Send") {
      std::string what = "drops " + node_->label();
      graph().erase(node_);
      return what;
    }
    if (node_->op_type == "Recv" || node_->inputs.empty() || node_->outputs.empty() || !node_->inputs[0] ||
        !node_->outputs[0])
      return std::nullopt;
    std::string what = "drops " + node_->label();
    Value* result = node_->outputs[0];
    for (spmd::Port& port : program_.outputs)
      if (port.value == result) port.value = node_->inputs[0];
    graph().replace_uses(result, node_->inputs[0]);
    graph().erase(node_);
    return what;
  }

  // Two nodes that do not depend on each other change places, with all that is about them.
  std::optional<std::string> swap() {
    Node* other = nodes_[pick(nodes_.size())];
    if (other == node_ || other->op_type != node_->op_type || depends(node_, other) || depends(other, node_))
      return std::nullopt;
    std::string what = "lets " + node_->label() + " and " + other->label() + " change places";
    exchange(*node_, *other);
    graph().sort();
    return what;
  }

  // Moved to where its neighbour among communications stands: the next one may come first.
  std::optional<std::string> reorder() {
    auto at = std::find(nodes_.begin(), nodes_.end(), node_);
    if (at + 1 == nodes_.end() || (*(at + 1))->op_type != node_->op_type || depends(*(at + 1), node_))
      return std::nullopt;
    std::string what = "puts " + (*(at + 1))->label() + " before " + node_->label();
    exchange(*node_, **(at + 1));
    graph().sort();
    return what;
  }

  void exchange(Node& a, Node& b) {
    std::swap(a.op_type, b.op_type);
    std::swap(a.attributes, b.attributes);
    std::swap(a.name, b.name);
    std::vector<Value*> operands = a.inputs, results = a.outputs;
    auto give = [&](Node& node, const std::vector<Value*>& inputs, const std::vector<Value*>& outputs) {
      for (size_t i = 0; i < inputs.size(); ++i) graph().set_input(&node, i, inputs[i]);
      node.outputs = outputs;
      for (Value* output : outputs)
        if (output) output->producer = &node;
    };
    std::vector<Value*> its_operands = b.inputs, its_results = b.outputs;
    give(a, its_operands, its_results);
    give(b, operands, results);
  }

  // Speaks to another rank, whether of its group or not.
  std::optional<std::string> readdress() {
    auto ranks = static_cast<size_t>(program_.mesh.size());
    auto other = static_cast<int64_t>(pick(ranks));
    graph().set_input(node_, node_->op_type == "Send" ? 1 : 0, graph().constant_int64({other}, true));
    return node_->label() + " speaks to rank " + std::to_string(other);
  }

  std::optional<std::string> retype() {
    std::string label = node_->label();
    if (node_->op_type == "Send" || node_->op_type == "Recv") return readdress();
    if (const auto* root = node_->get<int64_t>("root"); root && pick(2) == 0) {
      node_->set("root", *root == 0 ? int64_t{1} : *root - 1);
      return label + " has another root";
    }
    if (const auto* targets = node_->get<std::vector<int64_t>>("targets")) {
      auto turned = *targets;
      std::rotate(turned.begin(), turned.begin() + 1, turned.end());
      node_->set("targets", turned);
      return label + " sends to others";
    }
    if (node_->find_attribute("reduction") && pick(2) == 0) {
      std::string now = node_->get_string("reduction", "sum");
      std::string other = now == "max" ? "min" : "max";
      node_->set("reduction", other);
      return label + " reduces by " + other;
    }
    for (const char* attribute : {"dim", "split_dim", "concat_dim"})
      if (node_->find_attribute(attribute) && node_->input(0) && node_->input(0)->rank() > 1 && pick(2) == 0) {
        auto rank = static_cast<int64_t>(node_->input(0)->rank());
        int64_t other = (node_->get_int(attribute, 0) + 1 + static_cast<int64_t>(pick(rank - 1))) % rank;
        node_->set(attribute, other);
        return label + " works along dimension " + std::to_string(other);
      }
    if (node_->op_type == "AllReduce" && node_->input(0)->rank() > 0) {
      node_->op_type = "AllGather";
      node_->remove_attribute("reduction");
      node_->set("dim", static_cast<int64_t>(pick(node_->input(0)->rank())));
      return label + " becomes an all-gather";
    }
    if (node_->op_type == "AllGather" || node_->op_type == "ReduceScatter") {
      node_->op_type = "AllReduce";
      node_->remove_attribute("dim");
      node_->remove_attribute("extent");
      node_->set("reduction", std::string("sum"));
      return label + " becomes an all-reduce";
    }
    return std::nullopt;
  }

  std::optional<std::string> misgroup() {
    std::vector<std::string> now = *node_->get<std::vector<std::string>>("axes"), axes;
    for (const MeshAxis& axis : program_.mesh.axes())
      if (pick(2) == 0) axes.push_back(axis.name);
    if (axes.empty() || axes == now) return std::nullopt;
    node_->set("axes", axes);
    return node_->label() + fmt::format(" runs over {}", fmt::join(axes, ","));
  }

  spmd::Program& program_;
  std::mt19937_64 random_;
  std::vector<Node*> nodes_;
  Node* node_ = nullptr;
};

}  // namespace

runtime::RankPrograms apart(const runtime::RankPrograms& programs) {
  runtime::RankPrograms all = programs;
  all.programs.clear();
  all.program_of.clear();
  for (int rank = 0; rank < programs.mesh().size(); ++rank) {
    all.programs.push_back(clone(programs.of(rank)));
    all.program_of.push_back(rank);
  }
  return all;
}

std::optional<std::string> mutate(runtime::RankPrograms& programs, std::mt19937_64& random) {
  const bool everywhere = random() % 4 == 0;
  const size_t only = random() % programs.programs.size();
  const uint64_t seed = random();  // the same change on all ranks
  std::optional<std::string> what;
  for (size_t rank = 0; rank < programs.programs.size(); ++rank) {
    if (!everywhere && rank != only) continue;
    auto changed = clone(*programs.programs[rank]);
    what = Mutation(*changed, seed).run();
    if (!what) return std::nullopt;
    programs.programs[rank] = std::move(changed);
  }
  return *what + (everywhere ? " on all ranks" : fmt::format(" on rank {}", only));
}

}  // namespace tessera::random
