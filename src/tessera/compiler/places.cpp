#include "tessera/compiler/places.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/metadata.h"

namespace tessera::compiler {
namespace {

// The names that may denote a node: its own name, its results' names, and those of the modules that PyTorch's exporter
// notes for it, as "['', 'm', 'm.h.1', 'm.h.1.attn', 'matmul']".
std::vector<std::string> names_of(const Node& node) {
  std::vector<std::string> names = {node.name};
  for (const Value* result : node.outputs)
    if (result) names.push_back(result->name);
  const std::string scopes = get_metadata(node, "pkg.torch.onnx.name_scopes").value_or("");
  size_t open = scopes.find('\'');
  while (open != std::string::npos) {
    const size_t close = scopes.find('\'', open + 1);
    if (close == std::string::npos) break;
    names.push_back(scopes.substr(open + 1, close - open - 1));
    open = scopes.find('\'', close + 1);
  }
  std::erase(names, "");
  return names;
}

}  // namespace

NodePlaces::NodePlaces(const Graph& read, const std::vector<PlaceRequest>& requests, const Mesh& mesh)
    : any_(!requests.empty()) {
  std::vector<std::vector<PlacedAxis>> places;
  for (const PlaceRequest& request : requests) {
    places.push_back(parse_place(request.place, mesh, request.pattern));
    std::erase_if(places.back(), [](const PlacedAxis& entry) {
      return entry.axis.size == 1;
    });  // on an axis of one rank, a place is everywhere
  }
  std::vector<bool> matched(requests.size(), false);
  std::vector<size_t> globs;
  std::map<std::string, std::vector<size_t>> exact;  // indices of requests, by the name that they match
  for (size_t r = 0; r < requests.size(); ++r)
    if (requests[r].pattern.find('*') == std::string::npos)
      exact[requests[r].pattern].push_back(r);
    else
      globs.push_back(r);
  for (const auto& node : read.nodes()) {
    const std::vector<std::string> names = names_of(*node);
    std::set<size_t> meant;
    for (const std::string& name : names) {
      if (const auto found = exact.find(name); found != exact.end())
        meant.insert(found->second.begin(), found->second.end());
      for (size_t r : globs)
        if (glob_matches(requests[r].pattern, name)) meant.insert(r);
    }
    for (size_t r : meant) matched[r] = true;
    const std::vector<PlacedAxis> place = meant.empty() ? std::vector<PlacedAxis>() : places[*meant.begin()];
    for (const Value* result : node->outputs)
      if (result) of_result_[result->name] = place;
  }
  for (size_t r = 0; r < requests.size(); ++r)
    if (!matched[r]) {
      std::set<std::string> names;
      for (const auto& node : read.nodes())
        for (std::string& name : names_of(*node)) names.insert(std::move(name));
      fail("place", "'{}' matches no node of the model, no result of a node, and no module of PyTorch{}",
           requests[r].pattern, nearest_names({names.begin(), names.end()}, requests[r].pattern));
    }
}

namespace {

void refuse_in_flow(const Graph& graph, const spmd::Places& places) {
  if (places.empty()) return;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& [node, place] : places)
    if (flow.of(node) >= 0 || node->domain == flow::kDomain)
      fail("place",
           "{} belongs to an If, Loop or Scan, which all ranks run; remove its place, and those of nodes that need "
           "only its results",
           node->label());
}

}  // namespace

spmd::Places NodePlaces::in(const Graph& graph) const {
  spmd::Places places;
  if (!any_) return places;
  auto place_of = [&](const Node* node) {
    auto found = places.find(node);
    return found == places.end() ? std::vector<PlacedAxis>() : found->second;
  };
  for (auto at = graph.nodes().rbegin(); at != graph.nodes().rend(); ++at) {
    const Node& node = **at;
    std::vector<PlacedAxis> place;
    bool known = false, first = true;
    for (const Value* result : node.outputs) {
      if (!result || known) continue;
      if (auto found = of_result_.find(result->name); found != of_result_.end()) {
        place = found->second;
        known = true;
        continue;
      }
      for (const Use& use : result->uses) {
        if (first)
          place = place_of(use.node);
        else if (place != place_of(use.node))
          place.clear();
        first = false;
      }
    }
    if (!place.empty()) places[&node] = place;
  }
  refuse_in_flow(graph, places);
  return places;
}

void refuse_contradictions(std::vector<spmd::Annotation>& annotations, const spmd::Places& places, const Mesh& mesh,
                           std::vector<std::string>& warnings) {
  // The contradiction, in words; "" if there is none.
  auto clash = [&](const spmd::Annotation& annotation, const Node* node) -> std::string {
    auto placed = places.find(node);
    if (placed == places.end()) return "";
    for (const AxisRef& axis : annotation.sharding.axes())
      if (axis.size > 1 && spmd::overlaps(placed->second, axis))
        return fmt::format("'{}': its annotation is over '{}', along which {} is placed (at {})",
                           annotation.value->name, axis.str(mesh), node->label(), print_place(placed->second, mesh));
    return "";
  };
  std::erase_if(annotations, [&](const spmd::Annotation& annotation) {
    std::string wrong;
    if (annotation.value->producer)
      wrong = clash(annotation, annotation.value->producer);
    else
      for (const Use& use : annotation.value->uses)
        if (wrong.empty()) wrong = clash(annotation, use.node);
    if (wrong.empty()) return false;
    if (!annotation.optional) fail("place", "{}; leave out one of the two", wrong);
    warnings.push_back(fmt::format("{}: {}; the place is followed, and the layout is not", annotation.by, wrong));
    return true;
  });
}

std::vector<std::string> axes_of(const std::vector<PlaceRequest>& requests, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const PlaceRequest& request : requests)
    for (const PlacedAxis& place : parse_place(request.place, mesh, request.pattern)) axes.push_back(place.axis.axis);
  return axes;
}

std::string request_of(const std::vector<PlacedAxis>& place, const Mesh& mesh) {
  std::string text;
  for (const PlacedAxis& entry : place)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", entry.axis.str(mesh), entry.index);
  return text;
}

}  // namespace tessera::compiler
