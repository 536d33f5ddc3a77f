#include "tessera/proof/statement.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "tessera/base/error.h"

namespace tessera::proof {
namespace {

struct KindRow {
  std::string_view op_type;
  comm::Kind kind;
};

constexpr std::array kKinds = {
    KindRow{"AllReduce", comm::Kind::all_reduce},
    KindRow{"AllGather", comm::Kind::all_gather},
    KindRow{"ReduceScatter", comm::Kind::reduce_scatter},
    KindRow{"AllToAll", comm::Kind::all_to_all},
    KindRow{"Broadcast", comm::Kind::broadcast},
    KindRow{"Reduce", comm::Kind::reduce},
    KindRow{"Gather", comm::Kind::gather},
    KindRow{"Scatter", comm::Kind::scatter},
    KindRow{"Permute", comm::Kind::permute},
    KindRow{"Send", comm::Kind::send},
    KindRow{"Recv", comm::Kind::recv},
    KindRow{"Barrier", comm::Kind::barrier},
};

Expr stated_extent(const Node& node, std::string_view attribute, const Value* value, int64_t dim) {
  if (const auto* text = node.get<std::string>(attribute)) {
    if (auto extent = Expr::parse(*text)) return *extent;
    fail("check", "{}: {} = '{}' is no extent; write the program again", node.label(), attribute, *text);
  }
  if (!value || dim < 0 || dim >= static_cast<int64_t>(value->rank()))
    fail("check", "{}: there is no dimension {}; write the program again", node.label(), dim);
  return value->shape()[dim];
}

Expr peer_operand(const Node& node, size_t index) {
  const Value* peer = node.input(index);
  if (peer && peer->content && peer->content->size() == 1) return peer->content->front();
  if (peer && peer->kind == ValueKind::constant && is_integer(peer->dtype()) && peer->data.count() == 1)
    return peer->data.to_int64().front();
  fail("check", "{}: whom it speaks to depends on data; it must follow from the rank alone", node.label());
}

Communication communication_of(const Node& node, comm::Kind kind) {
  Communication result;
  result.node = &node;
  result.kind = kind;
  if (const auto* axes = node.get<std::vector<std::string>>("axes")) result.axes = *axes;
  if (const Value* in = node.input(0); in && kind != comm::Kind::recv) {
    result.dtype = in->dtype();
    result.in = in->shape();
  }
  if (const Value* out = node.output(0); out && kind != comm::Kind::send) {
    result.dtype = out->dtype();
    result.out = out->shape();
  }
  std::string reduction = node.get_string("reduction", "sum");
  bool known = false;
  for (Reduction candidate : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
    if (reduction == name_of(candidate)) {
      result.reduction = candidate;
      known = true;
    }
  if (!known) fail("check", "{}: there is no reduction '{}'", node.label(), reduction);
  result.root = node.get_int("root", 0);
  result.value = node.get_string("value", "");
  result.step = node.get_string("step", "");
  result.dim = node.get_int("dim", -1);
  result.split_dim = node.get_int("split_dim", -1);
  result.concat_dim = node.get_int("concat_dim", -1);
  switch (kind) {
    case comm::Kind::all_gather:
    case comm::Kind::gather:
      result.extent = stated_extent(node, spmd::kExtentAttribute, node.input(0), result.dim);
      break;
    case comm::Kind::reduce_scatter:
    case comm::Kind::scatter:
      result.extent = stated_extent(node, spmd::kExtentAttribute, node.output(0), result.dim);
      break;
    case comm::Kind::all_to_all:
      result.split_extent = stated_extent(node, spmd::kSplitExtentAttribute, node.output(0), result.split_dim);
      result.concat_extent = stated_extent(node, spmd::kConcatExtentAttribute, node.input(0), result.concat_dim);
      break;
    case comm::Kind::send:
      result.to = peer_operand(node, 1);
      break;
    case comm::Kind::recv:
      result.from = peer_operand(node, 0);
      break;
    case comm::Kind::permute:
      result.targets = node.get_ints("targets");
      break;
    default:
      break;
  }
  return result;
}

}  // namespace

std::vector<Communication> communications_of(const spmd::Program& program) {
  std::vector<Communication> all;
  for (const auto& node : program.graph->nodes()) {
    if (node->domain != spmd::kCommDomain) continue;
    for (const KindRow& row : kKinds)
      if (node->op_type == row.op_type) all.push_back(communication_of(*node, row.kind));
  }
  return all;
}

std::string Communication::str() const {
  const bool reduces =
      kind == comm::Kind::all_reduce || kind == comm::Kind::reduce_scatter || kind == comm::Kind::reduce;
  std::string text = node->op_type;
  if (reduces) text += fmt::format(" {}", name_of(reduction));
  if (!value.empty()) text += fmt::format(" of '{}'", value);
  if (dtype != DType::undefined)
    text += fmt::format(" {}{}", name_of(dtype), to_string(kind == comm::Kind::recv ? out : in));
  return text;
}

bool always_equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  std::set<std::string> symbols;
  a.collect_symbols(symbols);
  b.collect_symbols(symbols);
  if (symbols.empty()) return false;
  // Each symbol another value in each sample, small ones and large ones.
  constexpr std::array<int64_t, 12> kSizes = {0, 1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 1000};
  for (size_t sample = 0; sample < kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) bound[symbol] = kSizes[(sample + 5 * bound.size()) % kSizes.size()];
    if (a.evaluate(bound) != b.evaluate(bound)) return false;
  }
  return true;
}

bool always_equal(const Shape& a, const Shape& b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (!always_equal(a[d], b[d])) return false;
  return true;
}

}  // namespace tessera::proof
