#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Programs of ranks, written down communication by communication.
class Ranks {
 public:
  explicit Ranks(std::string_view mesh) {
    programs_.programs.resize(static_cast<size_t>(Mesh::parse(mesh).size()));
    for (size_t rank = 0; rank < programs_.programs.size(); ++rank) {
      auto program = std::make_shared<spmd::Program>();
      program->mesh = Mesh::parse(mesh);
      program->graph = std::make_unique<Graph>();
      own_.push_back(program.get());
      last_.push_back(program->graph->add_input("x", {DType::float32, Shape{4}}));
      program->inputs.push_back({"x", last_.back()});
      programs_.programs[rank] = std::move(program);
      programs_.program_of.push_back(static_cast<int>(rank));
    }
  }

  Graph& graph(int rank) { return *own_[rank]->graph; }

  Node* all_reduce(int rank, const std::string& axis, const std::string& value, Shape shape = {4}) {
    Value* operand = last_[rank];
    if (operand->shape() != shape) operand = graph(rank).add_input("other", {DType::float32, shape});
    return add(rank, "AllReduce", {operand}, axis, value, shape);
  }
  Node* all_gather(int rank, const std::string& axis, const std::string& value, int64_t extent, int64_t whole) {
    Value* operand = graph(rank).add_input("block", {DType::float32, Shape{extent}});
    Node* node = add(rank, "AllGather", {operand}, axis, value, {whole});
    node->set("dim", int64_t{0});
    return node;
  }
  Node* send(int rank, const std::string& axis, const std::string& value, int64_t to, Shape shape = {4}) {
    Value* data = graph(rank).add_input("data", {DType::float32, shape});
    Node* node = graph(rank).add_node("Send", {data, graph(rank).constant_int64({to}, true)}, {}, spmd::kCommDomain);
    return named(node, axis, value);
  }
  Node* recv(int rank, const std::string& axis, const std::string& value, int64_t from, Shape shape = {4}) {
    Value* extents = graph(rank).add_expression("shape", shape);
    Node* node =
        graph(rank).add_node("Recv", {graph(rank).constant_int64({from}, true), extents}, {value}, spmd::kCommDomain);
    node->outputs[0]->type = {DType::float32, shape};
    node->set("dtype", static_cast<int64_t>(DType::float32));
    return named(node, axis, value);
  }

  const runtime::RankPrograms& all() const { return programs_; }

 private:
  Node* add(int rank, std::string_view op, std::vector<Value*> operands, const std::string& axis,
            const std::string& value, Shape shape) {
    Node* node = graph(rank).add_node(op, std::move(operands), {value}, spmd::kCommDomain);
    node->outputs[0]->type = {DType::float32, std::move(shape)};
    return named(node, axis, value);
  }
  static Node* named(Node* node, const std::string& axis, const std::string& value) {
    node->set("axes", std::vector<std::string>{axis});
    node->set("value", value);
    return node;
  }

  runtime::RankPrograms programs_;
  std::vector<spmd::Program*> own_;
  std::vector<Value*> last_;
};

}  // namespace tessera::proof
