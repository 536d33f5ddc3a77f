#include "property/cases.h"

namespace tessera::property {

using Operands = std::vector<Value*>;

std::vector<Subject> resize_cases() {
  CaseList list;
  auto scales = [](Builder& b, std::vector<float> values) {
    return b.constant(Tensor::of<float>(DType::float32, {static_cast<int64_t>(values.size())}, values));
  };
  list.add("Resize", "nearest, by scales",
           [&](Builder& b) -> Operands {
             return {b.input("2 3 4 4"), nullptr, scales(b, {1, 1, 2, 2})};
           },
           {{"mode", std::string("nearest")}});
  list.add(
      "Resize", "linear, to sizes",
      [&](Builder& b) -> Operands {
        return {b.input("2 3 4 4", Fill::reals), nullptr, nullptr, b.ints({2, 3, 6, 5})};
      },
      {{"mode", std::string("linear")}}, kChain);
  return list.take();
}

}  // namespace tessera::property
