#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

struct Reduce {
  std::string_view type;
  Fill fill = Fill::integers;
  Bound bound = kExact;
};

constexpr Reduce kReductions[] = {
    {"ReduceSum"},
    // Each rank divides its own sum; without cancellation those roundings are small beside the mean.
    {"ReduceMean", Fill::positive, kReordered},
    {"ReduceMax"},
    {"ReduceMin"},
    {"ReduceSumSquare"},
    {"ReduceL1"},
    {"ReduceL2"},
    {"ReduceProd", Fill::small},
    {"ReduceLogSum", Fill::positive},
    {"ReduceLogSumExp", Fill::reals, kReordered},
};

}  // namespace

std::vector<Subject> reduction_cases() {
  CaseList list;
  Attribute drop{"keepdims", int64_t{0}};
  for (const Reduce& op : kReductions) {
    auto data = [&](Builder& b, std::string_view extents) { return b.input(extents, op.fill); };
    auto add = [&](std::string_view what, const CaseList::Make& operands, std::vector<Attribute> attributes = {}) {
      list.add(op.type, what, operands, std::move(attributes), op.bound);
    };
    add("the last dimension", [&](Builder& b) -> Operands { return {data(b, "4 6"), b.ints({-1})}; });
    add("two dimensions, dropped", [&](Builder& b) -> Operands { return {data(b, "4 3 5"), b.ints({0, -1})}; }, {drop});
    add("everything", [&](Builder& b) -> Operands { return {data(b, "4 6")}; }, {drop});
    add("symbolic", [&](Builder& b) -> Operands { return {data(b.bind("s", 5), "s 4"), b.ints({0})}; });
  }
  auto typed = [&](std::string_view type, DType dtype) {
    list.add(type, name_of(dtype), [&](Builder& b) -> Operands {
      return {b.input("4 6", Fill::integers, dtype), b.ints({1})};
    });
  };
  typed("ReduceSum", DType::int64);
  typed("ReduceSum", DType::int32);
  typed("ReduceMean", DType::int64);
  typed("ReduceMax", DType::int32);
  typed("ReduceMin", DType::uint8);
  typed("ReduceMax", DType::boolean);
  typed("ReduceProd", DType::int32);
  for (std::string_view type : {"ReduceSum", "ReduceProd", "ReduceSumSquare"})
    list.add(type, "nothing", [](Builder& b) -> Operands { return {b.input("4 0"), b.ints({1})}; });
  list.add("ReduceSum", "of no axes at all",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.ints({})};
           },
           {{"noop_with_empty_axes", int64_t{1}}});
  list.add(
      "ReduceMean", "a sequence",
      [](Builder& b) -> Operands {
        return {b.bind("b", 2).bind("s", 5).input("b s 4", Fill::positive), b.ints({1})};
      },
      {drop}, kReordered);
  list.add("ReduceMax", "special values", [](Builder& b) -> Operands {
    return {b.input("4 6", Fill::special), b.ints({1})};
  });
  list.add(
      "ReduceMean", "bfloat16",
      [](Builder& b) -> Operands {
        return {b.input("4 6", Fill::positive, DType::bfloat16), b.ints({1})};
      },
      {}, kBFloat16);
  // Sums below 2^8 are exact in bfloat16's 8 bits.
  list.add("ReduceSum", "bfloat16", [](Builder& b) -> Operands {
    return {b.input("4 6", Fill::integers, DType::bfloat16), b.ints({1})};
  });
  for (std::string_view type : {"ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceMean"}) {
    const Bound bound = type == "ReduceMean" ? kReordered : kExact;
    list.add(
        type, "float32 sums of bfloat16",
        [](Builder& b) -> Operands {
          return {b.input("4 6", Fill::integers, DType::bfloat16), b.ints({1})};
        },
        {{"accumulate", std::string("float32")}}, bound, 1, "tessera");
  }

  for (std::string_view type : {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd"}) {
    list.add(
        type, "bfloat16",
        [](Builder& b) -> Operands {
          return {b.input("4 6", Fill::positive, DType::bfloat16), b.ints({1})};
        },
        {drop}, kBFloat16);
    if (type == "ReduceLogSumExp") continue;
    list.add(type, "int64", [](Builder& b) -> Operands {
      return {b.input("4 6", Fill::positive, DType::int64), b.ints({1})};
    });
  }
  list.add(
      "ReduceLogSumExp", "special values",
      [](Builder& b) -> Operands {
        return {b.weight("9 4", Fill::special_integers), b.ints({1})};
      },
      {drop}, kNormalized);

  auto axis = [](int64_t at) { return Attribute{"axis", at}; };
  for (std::string_view type : {"ArgMax", "ArgMin"}) {
    for (int64_t last : {0, 1}) {
      const Attribute selects{"select_last_index", last};
      list.add(type, last ? "special values, the last" : "special values",
               [](Builder& b) -> Operands { return {b.weight("9 5", Fill::special_integers)}; }, {axis(1), selects});
      list.add(type, last ? "fewer rows than ranks, the last" : "fewer rows than ranks",
               [](Builder& b) -> Operands { return {b.weight("2 5", Fill::special_integers)}; }, {axis(0), selects});
      list.add(type, last ? "uint8, the last" : "uint8",
               [](Builder& b) -> Operands { return {b.weight("4 6", Fill::small, DType::uint8)}; }, {axis(1), selects});
    }
    list.add(type, "bfloat16", [](Builder& b) -> Operands { return {b.input("4 6", Fill::integers, DType::bfloat16)}; },
             {axis(1)});
    list.add(type, "symbolic", [](Builder& b) -> Operands { return {b.bind("s", 5).input("s 4")}; }, {axis(0), drop});
    list.add(type, "rows", [](Builder& b) -> Operands { return {b.input("4 6")}; }, {axis(-1)});
    list.add(type, "columns, the last of ties", [](Builder& b) -> Operands { return {b.input("6 4", Fill::small)}; },
             {axis(0), drop, {"select_last_index", int64_t{1}}});
  }
  for (std::string_view type : {"CumSum", "CumProd"}) {
    const auto running = [&](std::string_view what, int64_t along, std::vector<Attribute> attributes) {
      list.add(
          type, what,
          [&](Builder& b) -> Operands {
            return {b.input("4 6"), b.integer(along)};
          },
          std::move(attributes));
    };
    running("rows", 1, {});
    running("columns, exclusive", -2, {{"exclusive", int64_t{1}}});
    running("backwards", 1, {{"reverse", int64_t{1}}});
    running("backwards, exclusive", 0, {{"reverse", int64_t{1}}, {"exclusive", int64_t{1}}});
    list.add(type, "int32", [](Builder& b) -> Operands {
      return {b.weight("3 7", Fill::nonzero, DType::int32), b.integer(1)};
    });
    list.add(type, "a symbolic sequence", [](Builder& b) -> Operands {
      return {b.bind("s", 3).input("2 s 3", Fill::small), b.integer(1)};
    });
    list.add(
        type, "bfloat16",
        [](Builder& b) -> Operands {
          return {b.input("4 6", Fill::small, DType::bfloat16), b.integer(1)};
        },
        {}, kBFloat16);
    list.add(type, "special values", [](Builder& b) -> Operands {
      return {b.weight("9 5", Fill::special_integers), b.integer(1)};
    });
  }
  return list.take();
}

}  // namespace tessera::property
