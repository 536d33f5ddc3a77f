#include "tessera/proof/statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/buckets.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/always_equal.h"

namespace tessera::proof {
namespace {

Communication communication_of(const Node& node, const Mesh& mesh) {
  Communication result = statement_of(node, mesh);
  if (const Value* in = node.input(0); in && result.kind != comm::Kind::recv) {
    result.dtype = in->dtype();
    result.in = in->shape();
    result.has_operand = true;
  }
  if (const Value* out = node.output(0); out && result.kind != comm::Kind::send) {
    result.dtype = out->dtype();
    result.out = out->shape();
    if (!node.input(0)) result.in = result.out;  // used by broadcast and permute only
  }
  result.extents = spmd::member_extents(result, node);
  if (result.is_message()) (result.kind == comm::Kind::send ? result.to : result.from) = dialect::peer_of(node);
  return result;
}

}  // namespace

Communication statement_of(const Node& node, const Mesh& mesh) {
  Communication result{spmd::read_collective(node, mesh)};
  result.node = &node;
  return result;
}

std::vector<Communication> communications_of(const spmd::Program& program) {
  std::vector<Communication> all;
  for (const auto& node : program.graph->nodes())
    if (dialect::communicates(*node)) {
      all.push_back(communication_of(*node, program.mesh));
      all.back().as_written = program.as_written;
      const auto placed = program.placements.find(node->output(0));
      if (placed != program.placements.end()) all.back().layout = placed->second.sharding;
    }
  return all;
}

std::string Communication::str() const {
  std::string text = node->op_type;
  if (traits_of(kind).reduces) text += fmt::format(" {}", name_of(reduction));
  if (!value.empty()) text += fmt::format(" of '{}'", value);
  if (dtype != DType::undefined)
    text += fmt::format(" {}{}", name_of(dtype), to_string(kind == comm::Kind::recv ? out : in));
  return text;
}

bool equal_as_shapes(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal_as_extents);
}

}  // namespace tessera::proof
