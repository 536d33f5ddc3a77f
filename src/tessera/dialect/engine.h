#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/spmd/collective_attributes.h"

/// Building blocks for the engines of foreign.h.
namespace tessera::dialect {

/// A collective of ours that is written as an engine's.
struct Outgoing {
  Graph& graph;
  Node& node;
  const Mesh& mesh;
  spmd::CollectiveAttributes collective;  ///< what the node says
  std::vector<int> members;               ///< ranks of the group, in member order
  bool of_all = false;                    ///< the members are all ranks, in their order

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("write", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
  }
};

/// An engine's collective that is read as one of ours.
struct Incoming {
  Graph& graph;
  Node& node;
  const Mesh& mesh;
  std::optional<int64_t> rank;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("dialect", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
  }
  const Shape& shape() const;  ///< of the operand
};

struct EngineEntry {
  std::string_view name;
  std::string_view domain;
  bool (*owns)(const Node& node);
  void (*write)(const Outgoing& outgoing);
  void (*read)(const Incoming& incoming);
};

EngineEntry ort_engine();
EngineEntry tensorrt_engine();

/// Throws unless all members' blocks, whose extents the node states, are equal.
void require_even(const Outgoing& outgoing, std::string_view engine);
/// The members' common extent in a dimension that they split; a user error if it does not divide.
Expr block_of(const Incoming& incoming, int64_t dim, int64_t members);

/// Turns a node into another operator over these operands; its results stay.
void become(Graph& graph, Node& node, std::string_view op_type, std::string_view domain,
            const std::vector<Value*>& operands, std::vector<Attribute> attributes);
/// Turns a node of another engine into our collective.
void become(const Incoming& incoming, const spmd::CollectiveAttributes& collective);
/// Puts a node of that operator before the given one, over `operand`, with a result of that shape, and returns it. The
/// given node keeps its results and becomes the last of several.
Node* put_before(Graph& graph, Node& node, std::string_view op_type, std::string_view domain, Value* operand,
                 Shape result);

/// Writes an AllToAll over any two dimensions as one that exchanges equal blocks of dimension 0, by an operator of that
/// name and attributes.
void write_exchange(const Outgoing& outgoing, std::string_view op_type, std::string_view domain,
                    std::vector<Attribute> attributes);
/// The inverse of such an exchange.
void read_exchange(const Incoming& incoming, const std::vector<std::string>& axes);

}  // namespace tessera::dialect
