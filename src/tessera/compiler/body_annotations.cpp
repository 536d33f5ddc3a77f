#include "tessera/compiler/body_annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/compiler/labels.h"
#include "tessera/ir/glob.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera::compiler {
namespace {

struct BodyTensor {
  Graph* body;
  Value* value;
  std::string name;       ///< "y/then/h"
  std::string outermost;  ///< "y/"
};

// The results of nodes in bodies, and the values that bodies capture.
std::vector<BodyTensor> tensors_in_bodies(const Graph& graph, const std::string& around = "",
                                          const std::string& outermost = "") {
  std::vector<BodyTensor> found;
  for (const auto& node : graph.nodes())
    for (const auto& attribute : node->attributes) {
      const auto* region = std::get_if<Region>(&attribute.value);
      if (!region) continue;
      const std::string prefix = around + rewrite::prefix_of(*node) + "/";
      const std::string inside = prefix + (attribute.name == "then_branch"   ? "then/"
                                           : attribute.name == "else_branch" ? "else/"
                                                                             : "");
      const std::string& first = outermost.empty() ? prefix : outermost;
      Graph& body = **region;
      for (const auto& value : body.values())
        if (value->producer || std::find(body.inputs.begin(), body.inputs.end(), value.get()) != body.inputs.end())
          found.push_back({&body, value.get(), inside + value->name, first});
      for (BodyTensor& inner : tensors_in_bodies(body, inside, first)) found.push_back(std::move(inner));
    }
  return found;
}

bool means(const AnnotationRequest& request, const BodyTensor& tensor) {
  return request.pattern == tensor.name ||
         (request.pattern.starts_with(tensor.outermost) && glob_matches(request.pattern, tensor.name));
}

bool means_any(const AnnotationRequest& request, const Graph& graph) {
  return std::any_of(graph.values().begin(), graph.values().end(),
                     [&](const auto& value) { return glob_matches(request.pattern, value->name); });
}

}  // namespace

std::vector<AnnotationRequest> label_in_bodies(OnnxModel& model, const std::vector<AnnotationRequest>& requests) {
  const std::vector<BodyTensor> tensors = tensors_in_bodies(*model.graph);
  std::vector<AnnotationRequest> all;
  std::set<const Value*> labelled;
  for (const AnnotationRequest& request : requests) {
    bool in_body = false;
    std::vector<AnnotationRequest> own;
    for (const BodyTensor& tensor : tensors) {
      if (request.is_labelled() || !means(request, tensor)) continue;
      in_body = true;
      if (!labelled.insert(tensor.value).second) continue;
      AnnotationRequest made = request;
      made.pattern = fmt::format("{}body/{}", rewrite::kLabelPrefix, tensor.name);
      made.is_one_of_many = request.pattern != tensor.name;
      labelled_instead(*tensor.body, tensor.value, made.pattern);
      own.push_back(std::move(made));
    }
    if (!in_body || means_any(request, *model.graph)) all.push_back(request);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace tessera::compiler
