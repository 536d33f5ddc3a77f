#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

Attribute key(int64_t value) {
  return {"key", value};
}

void add_dropout(CaseList& list) {
  list.add(
      "Dropout", "with the usual ratio", [](Builder& b) -> Operands { return {b.input("6 4")}; }, {key(3)}, kExact, 1,
      "tessera");
  list.add(
      "Dropout", "with its mask",
      [](Builder& b) -> Operands {
        return {b.input("6 5 4"), b.number(0.25), nullptr, b.input("", Fill::small, DType::int64)};
      },
      {key(-7)}, kExact, 2, "tessera");
  list.add(
      "Dropout", "of 16-bit floats, not training",
      [](Builder& b) -> Operands {
        return {b.input("6 4", Fill::reals, DType::bfloat16), b.number(0.3), b.number(0, DType::boolean)};
      },
      {key(3)}, kExact, 2, "tessera");
}

void add_fillings(CaseList& list) {
  for (const char* type : {"RandomUniform", "RandomNormal"})
    for (DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
      list.add(
          type, name_of(dtype),
          [](Builder& b) -> Operands {
            return {b.ints({6, 5, 4}), b.input("", Fill::small, DType::int64)};
          },
          {key(11), {"dtype", static_cast<int64_t>(dtype)}}, kExact, 1, "tessera");
}

}  // namespace

std::vector<Subject> random_cases() {
  CaseList list;
  add_dropout(list);
  add_fillings(list);
  return list.take();
}

}  // namespace tessera::property
