#include "tessera/compiler/with_outputs.h"

#include <string_view>

#include "tessera/base/error.h"
#include "tessera/ir/glob.h"

namespace tessera::compiler {

OnnxModel with_outputs(const OnnxModel& model, const std::vector<std::string>& names) {
  OnnxModel own = model.clone();
  Graph& graph = *own.graph;
  graph.outputs.clear();
  for (const std::string& name : names) {
    Value* value = graph.find(name);
    if (!value || value->kind != ValueKind::result) {
      std::vector<std::string_view> results;
      for (const Value* result : graph.values_of(ValueKind::result)) results.push_back(result->name);
      fail("outputs", "no node of the model makes a tensor '{}'{}; name an output, or another result of a node", name,
           nearest_names(results, name));
    }
    if (graph.is_output(value)) fail("outputs", "'{}' is named twice; name it once", name);
    graph.outputs.push_back(value);
  }
  if (names.empty()) fail("outputs", "a model without outputs computes nothing; name at least one tensor");
  graph.erase_dead();
  return own;
}

}  // namespace tessera::compiler
