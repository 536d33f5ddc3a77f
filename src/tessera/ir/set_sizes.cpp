#include "tessera/ir/set_sizes.h"

namespace tessera {

void set_sizes(Graph& graph, const std::map<std::string, int64_t, std::less<>>& sizes) {
  for (const auto& value : graph.values()) {
    if (!value->has_shape()) continue;
    for (Expr& extent : *value->type.shape)
      extent = extent.substitute([&](std::string_view name) -> std::optional<Expr> {
        const auto size = sizes.find(name);
        return size == sizes.end() ? std::nullopt : std::optional<Expr>(size->second);
      });
  }
}

}  // namespace tessera
