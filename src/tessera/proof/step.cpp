#include "tessera/proof/step.h"

#include <algorithm>

#include "tessera/dialect/numbering.h"
#include "tessera/ops/op.h"

namespace tessera::proof {
namespace {

bool commutes(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  return op && op->commutative;
}

}  // namespace

Step::Step(const Node& node) : copies_(node.is("Identity")), commutes_(commutes(node)) {
  begun_.add(node.domain).add(node.op_type).add(dialect::attributes_text(node));
  for (const std::string& capture : node.captures) begun_.add(capture);
}

Number Step::of(std::vector<Number> operands) const {
  if (copies_ && !operands.empty()) return operands.front();
  while (!operands.empty() && operands.back() == Number()) operands.pop_back();
  if (commutes_ && operands.size() == 2) std::sort(operands.begin(), operands.end());
  Mixer mixer = begun_;
  mixer.add(operands.size());
  for (const Number& operand : operands) mixer.add(operand);
  return mixer.number();
}

Number result_number(const Number& step, size_t index) {
  return index == 0 ? step : Mixer().add(step).add(index).number();
}

}  // namespace tessera::proof
