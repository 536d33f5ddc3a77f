#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"
#include "tessera/proof/rope.h"
#include "tessera/proof/statement.h"
#include "tessera/proof/step.h"

namespace tessera::proof {

/// What is derived about a value on a rank: its number, and its pieces if it consists of pieces of other values.
struct Held {
  Number number;
  std::shared_ptr<const Rope> rope;

  Held() = default;
  Held(const Number& of) : number(of) {}
  Held(Rope of) : number(of.number()), rope(std::make_shared<const Rope>(std::move(of))) {}
};

/// A program's nodes, prepared for following all ranks that run it. Values are identified by indices.
struct Script {
  struct Line {
    Step step;
    const Communication* communication = nullptr;
    const Node* node = nullptr;
    std::vector<int> operands, results;        // -1: absent
    std::vector<std::vector<size_t>> made_of;  // OpDef::made_of
  };

  const spmd::Program& program;
  std::unordered_map<const Value*, int> index;
  std::vector<const Value*> sources;  // no node makes them
  std::vector<Line> lines;

  Script(const spmd::Program& of, const std::vector<Communication>& communications) : program(of) {
    for (const auto& value : of.graph->values()) {
      index.emplace(value.get(), static_cast<int>(index.size()));
      if (!value->producer) sources.push_back(value.get());
    }
    auto next = communications.begin();
    for (const auto& node : of.graph->nodes()) {
      Line line{Step(*node), nullptr, node.get(), numbered(node->inputs), numbered(node->outputs), {}};
      if (const ops::OpDef* op = ops::find_op(node->op_type, node->domain)) line.made_of = op->made_of;
      if (next != communications.end() && next->node == node.get()) line.communication = &*next++;
      lines.push_back(std::move(line));
    }
    check(next == communications.end(), "communications are in the order of the nodes");
  }

  std::vector<int> numbered(const std::vector<Value*>& values) const {
    std::vector<int> all;
    for (const Value* value : values) all.push_back(value ? index.at(value) : -1);
    return all;
  }
};

}  // namespace tessera::proof
