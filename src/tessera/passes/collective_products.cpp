#include "tessera/passes/collective_products.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/passes/product_pieces.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

template <typename Site>
ProductCollective made(size_t at, std::variant<Site, std::string> found) {
  if (auto* site = std::get_if<Site>(&found)) return {at, std::move(*site)};
  return {at, std::get<std::string>(std::move(found))};
}

std::optional<ProductCollective> at_node(const spmd::Program& program, const flow::Flow& flow, Node* node, size_t at) {
  const auto kind = spmd::communication_of(*node);
  if (kind == Collective::all_gather) return made(at, gather_product(program, flow, node));
  if (kind == Collective::reduce_scatter) return made(at, product_scatter(program, flow, node));
  if (kind == Collective::all_reduce) return made(at, product_reduce(program, flow, node));
  return std::nullopt;
}

}  // namespace

const Node& ProductCollective::collective() const {
  if (const auto* gathers = std::get_if<GatherProduct>(&site)) return *gathers->gather;
  if (const auto* scatters = std::get_if<ProductScatter>(&site)) return *scatters->scatter;
  return *std::get<ProductReduce>(site).reduce;
}

std::vector<const Node*> ProductCollective::products() const {
  if (const auto* gathers = std::get_if<GatherProduct>(&site))
    return {gathers->products.begin(), gathers->products.end()};
  if (const auto* scatters = std::get_if<ProductScatter>(&site)) return {scatters->product};
  const auto& reduces = std::get<ProductReduce>(site);
  std::vector<const Node*> all = {reduces.product};
  all.insert(all.end(), reduces.readers.begin(), reduces.readers.end());
  return all;
}

const std::vector<AxisRef>& ProductCollective::axes() const {
  if (const auto* gathers = std::get_if<GatherProduct>(&site)) return gathers->axes;
  if (const auto* scatters = std::get_if<ProductScatter>(&site)) return scatters->axes;
  return std::get<ProductReduce>(site).axes;
}

std::vector<ProductCollective> product_collectives(const spmd::Program& program) {
  const flow::Flow flow = flow::flow_of(*program.graph);
  std::vector<ProductCollective> all;
  size_t at = 0;
  for (const auto& node : program.graph->nodes())
    if (auto found = at_node(program, flow, node.get(), at++)) all.push_back(std::move(*found));
  return all;
}

void collective_products(spmd::Program& program, Context& context) {
  if (!context.choose_rings) return;
  const std::vector<RingChoice> choices = context.choose_rings(program);
  if (choices.empty()) return;
  std::vector<Node*> nodes;
  for (const auto& node : program.graph->nodes()) nodes.push_back(node.get());
  const flow::Flow flow = flow::flow_of(*program.graph);
  std::map<std::tuple<std::string, std::string, std::string>, int> counts;  // by kind, axes and form
  for (const RingChoice& choice : choices) {
    // A product that two collectives surround is in pieces after the first: the second sees these.
    const auto found = at_node(program, flow, nodes[choice.at], choice.at);
    check(found.has_value(), "a ring is chosen for a collective");
    if (!found->is_candidate()) continue;
    ++counts[{found->collective().op_type, axes_text(found->axes(), program.mesh), str(choice.form)}];
    if (const auto* gathers = std::get_if<GatherProduct>(&found->site))
      decompose(program, *gathers, choice.form);
    else if (const auto* scatters = std::get_if<ProductScatter>(&found->site))
      decompose(program, *scatters, choice.form);
    else
      decompose(program, std::get<ProductReduce>(found->site), choice.form);
  }
  spmd::erase_dead(program);
  for (const auto& [key, count] : counts) {
    const auto& [kind, axes, form] = key;
    const std::string name = kind == "AllGather"       ? "all-gather"
                             : kind == "ReduceScatter" ? "reduce-scatter"
                                                       : "all-reduce";
    context.notes.push_back(fmt::format("{} {}{} over {} in a ring, beside {} ({})", count, name,
                                        count == 1 ? " goes" : "s go", axes,
                                        count == 1 ? "its products" : "their products", form));
  }
}

}  // namespace tessera::passes
