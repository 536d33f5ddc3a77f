#include "tessera/inspect.h"
#include "tessera/ir/solve_extents.h"

namespace tessera {
inline namespace v1 {

SymbolSizes sizes_of(const std::vector<TensorInfo>& ports, const Tensors& inputs) {
  std::vector<KnownExtent> extents;
  for (const TensorInfo& port : ports) {
    const auto given = inputs.find(port.name);
    if (given == inputs.end() || given->second.dims.size() != port.shape.size()) continue;
    for (size_t d = 0; d < port.shape.size(); ++d) {
      const std::optional<Expr> extent = Expr::parse(port.shape[d]);
      extents.push_back({extent ? *extent : Expr::symbol(port.shape[d]), given->second.dims[d]});
    }
  }
  SymbolSizes sizes;
  for (const auto& [symbol, found] : solve_extents(extents)) sizes[symbol] = found.size;
  return sizes;
}

}  // namespace v1
}  // namespace tessera
