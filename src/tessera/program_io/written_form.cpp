#include "tessera/program_io/written_form.h"

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"

namespace tessera::program_io {
namespace {

void require_form(const Graph& graph, const WriteOptions& form, const std::string& source) {
  auto wrong = [&](const Node& node, std::string_view what, const std::string& option) {
    fail("program", "'{}' does not match its manifest, whose form is {}: {} {}; write the program again", source,
         option, node.label(), what);
  };
  const std::map<std::string, std::string> words = form.words();
  for (const auto& node : graph.nodes()) {
    for (const Graph* region : node->regions()) require_form(*region, form, source);
    const auto kind = dialect::kind_of(*node);
    if (!kind) continue;
    const bool by_position = node->find_attribute(spmd::kOrderAttribute) != nullptr;
    if (by_position != (form.order == Order::position))
      wrong(*node, by_position ? "is ordered by position" : "is ordered by tokens", "order=" + words.at("order"));
    if (form.lower == Lower::primitives && *kind != comm::Kind::send && *kind != comm::Kind::recv)
      wrong(*node, "is a collective", "lower=" + words.at("lower"));
  }
}

}  // namespace

void require_form(const OnnxModel& model, const WriteOptions& form, const std::string& source) {
  require_form(*model.graph, form, source);
  for (const Function& function : model.functions) require_form(*function.body, form, source);
}

}  // namespace tessera::program_io
