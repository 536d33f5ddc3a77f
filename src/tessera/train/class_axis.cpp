#include "tessera/train/class_axis.h"

namespace tessera::train {

std::vector<size_t> class_axes(const Shape& logits, const Shape& labels) {
  std::vector<size_t> axes;
  if (labels.size() + 1 != logits.size()) return axes;
  const auto fits = [](const Expr& logit, const Expr& label) {
    return logit == label || (label.is_constant() && !logit.is_constant());
  };
  for (size_t axis = 1; axis < logits.size(); ++axis) {
    bool all = true;
    for (size_t d = 1; d < labels.size(); ++d) all = all && fits(logits[d < axis ? d : d + 1], labels[d]);
    if (all) axes.push_back(axis);
  }
  return axes;
}

}  // namespace tessera::train
