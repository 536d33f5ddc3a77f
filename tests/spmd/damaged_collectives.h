#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/program.h"

/// Communication nodes on the mesh tp=2, each with one attribute that is invalid.
namespace tessera::spmd {

struct DamagedCollective {
  std::string what;
  CollectiveAttributes sound;
  std::function<void(Node&)> damage;
  std::string error;  ///< what every reader says of it

  /// The damaged node, as "'n'", over an input x [4, 4].
  Node* node_in(Graph& graph) const {
    const TensorType type{DType::float32, Shape{4, 4}};
    std::vector<Value*> operands = {graph.add_input("x", type)};
    const bool receives = sound.kind == Collective::recv;
    if (receives) operands = {graph.constant_int64({-1}, true), graph.constant_int64({4, 4})};
    Node* node = graph.add_node(traits_of(sound.kind).op, operands, {"y"}, kCommDomain);
    node->name = "n";
    node->outputs[0]->type = type;
    node->attributes = written(sound);
    damage(*node);
    return node;
  }
};

inline std::vector<DamagedCollective> damaged_collectives() {
  using Texts = std::vector<std::string>;
  using Numbers = std::vector<int64_t>;
  const auto set = [](std::string_view name, AttributeValue value) {
    return [name, value](Node& node) { node.set(name, value); };
  };
  const auto drop = [](std::string_view name) { return [name](Node& node) { node.remove_attribute(name); }; };
  const CollectiveAttributes reduce{.kind = Collective::all_reduce, .axes = {"tp"}};
  const CollectiveAttributes gather{.kind = Collective::all_gather, .axes = {"tp"}, .dim = 0};
  const CollectiveAttributes exchange{.kind = Collective::all_to_all, .axes = {"tp"}, .split_dim = 1, .concat_dim = 0};
  const CollectiveAttributes broadcast{.kind = Collective::broadcast, .axes = {"tp"}};
  const CollectiveAttributes permute{.kind = Collective::permute, .axes = {"tp"}, .targets = {1, 0}};
  const CollectiveAttributes receive{.kind = Collective::recv, .axes = {"tp"}, .dtype = DType::float32};
  return {
      {"no axes", reduce, drop("axes"), "'n': its attribute axes is missing; give it a list of strings"},
      {"axes as a text", reduce, set("axes", std::string("tp")), "'n': its attribute axes must be a list of strings"},
      {"unknown axis", reduce, set("axes", Texts{"pp"}), "'n': its axes: 'pp' is not an axis of the mesh tp=2"},
      {"other attribute", reduce, set("dim", int64_t{0}), "'n': AllReduce has no attribute 'dim'; it has axes"},
      {"other order", reduce, set("order", std::string("last")), "'n': its order must be \"position\""},
      {"unknown reduction", reduce, set("reduction", std::string("median")),
       "'n': its reduction 'median' does not exist; use sum, max, min or mean"},
      {"number as a reduction", reduce, set("reduction", int64_t{1}), "'n': its attribute reduction must be a string"},
      {"bucket as a text", reduce, set("bucket", std::string("a")), "'n': its attribute bucket must be an integer"},
      {"no dimension", gather, drop("dim"), "'n': its attribute dim is missing; give it an integer"},
      {"dimension too large", gather, set("dim", int64_t{2}),
       "'n': its dim is 2; its operand has the dimensions 0 to 1"},
      {"negative dimension", gather, set("dim", int64_t{-1}), "'n': its dim is -1; its operand has"},
      {"no expression", gather, set("extent", std::string("4 +")), "'n': its extent '4 +' is not an expression"},
      {"extent over an unknown axis", gather, set("extent", std::string("4 - @pp")),
       "'n': its extent '4 - @pp' names the axis 'pp', which the mesh tp=2 does not have"},
      {"one dimension twice", exchange, set("split_dim", int64_t{0}),
       "'n': its split_dim and concat_dim are both 0; name two dimensions"},
      {"split dimension too large", exchange, set("split_dim", int64_t{9}), "'n': its split_dim is 9; its operand has"},
      {"no root", broadcast, drop("root"), "'n': its attribute root is missing; give it an integer"},
      {"root outside of the group", broadcast, set("root", int64_t{2}),
       "'n': its root is member 2; the group has the members 0 to 1"},
      {"too few targets", permute, set("targets", Numbers{1}), "'n': it has 1 targets; give one for each of the 2"},
      {"target outside of the group", permute, set("targets", Numbers{2, 0}),
       "'n': one of its targets is 2; use a member from 0 to 1, or -1 for none"},
      {"one target twice", permute, set("targets", Numbers{1, 1}), "'n': two members send to member 1"},
      {"no type", receive, drop("dtype"), "'n': its attribute dtype is missing; give it an integer"},
      {"unknown type", receive, set("dtype", int64_t{99}), "'n': its dtype is 99; give the number of one of ONNX's"},
  };
}

/// The user error that `read` throws.
template <typename Read>
std::string refusal_of(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::user ? error.what() : std::string("not a user error: ") + error.what();
  }
  return "no error";
}

}  // namespace tessera::spmd
