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

Expr stated_extent(const Node& node, std::string_view attribute, const Value* value, int64_t dim) {
  if (!value || dim < 0 || dim >= static_cast<int64_t>(value->rank()))
    fail("check", "{}: there is no dimension {}; write the program again", node.label(), dim);
  return dialect::stated_extent(node, attribute, value->shape()[dim]);
}

Communication communication_of(const Node& node, comm::Kind kind) {
  Communication result = statement_of(node, kind);
  if (const Value* in = node.input(0); in && kind != comm::Kind::recv) {
    result.dtype = in->dtype();
    result.in = in->shape();
    result.has_operand = true;
  }
  if (const Value* out = node.output(0); out && kind != comm::Kind::send) {
    result.dtype = out->dtype();
    result.out = out->shape();
    if (!node.input(0)) result.in = result.out;  // for broadcast and permute; others do not use it
  }
  switch (traits_of(kind).block) {
    case BlockSide::operand:
      result.extent = stated_extent(node, spmd::kExtentAttribute, node.input(0), result.dim);
      break;
    case BlockSide::result:
      result.extent = stated_extent(node, spmd::kExtentAttribute, node.output(0), result.dim);
      break;
    case BlockSide::both:
      result.split_extent = stated_extent(node, spmd::kSplitExtentAttribute, node.output(0), result.split_dim);
      result.concat_extent = stated_extent(node, spmd::kConcatExtentAttribute, node.input(0), result.concat_dim);
      break;
    case BlockSide::none:
      break;
  }
  if (traits_of(kind).message) (kind == comm::Kind::send ? result.to : result.from) = dialect::peer_of(node);
  return result;
}

}  // namespace

Communication statement_of(const Node& node, comm::Kind kind) {
  Communication result;
  result.node = &node;
  result.kind = kind;
  if (const auto* axes = node.get<std::vector<std::string>>("axes")) result.axes = *axes;
  result.reduction = dialect::reduction_of(node);
  result.root = node.get_int("root", 0);
  result.value = node.get_string("value", "");
  result.step = node.get_string("step", "");
  result.dim = node.get_int("dim", -1);
  result.split_dim = node.get_int("split_dim", -1);
  result.concat_dim = node.get_int("concat_dim", -1);
  if (const auto* bucket = node.get<int64_t>(dialect::kBucketAttribute)) result.bucket = *bucket;
  if (kind == comm::Kind::permute) result.targets = node.get_ints("targets");
  return result;
}

std::vector<Communication> communications_of(const spmd::Program& program) {
  std::vector<Communication> all;
  for (const auto& node : program.graph->nodes())
    if (auto kind = dialect::kind_of(*node)) {
      all.push_back(communication_of(*node, *kind));
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
