#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;
using Ints = std::vector<int64_t>;

void add_reshapes(CaseList& list) {
  auto reshape = [&](std::string_view from, Ints to, std::string_view what) {
    list.add("Reshape", what, [&](Builder& b) -> Operands {
      b.bind("b", 3);
      return {b.input(from), b.ints(to)};
    });
  };
  reshape("4 6", {4, 2, 3}, "a dimension in two");
  reshape("2 3 4", {6, 4}, "two dimensions in one");
  reshape("2 12", {2, 3, 4}, "heads");
  reshape("4 6", {6, 4}, "across");
  reshape("4 6", {8, 3}, "across, in part");
  reshape("b 6", {-1, 2, 3}, "symbolic");
  reshape("b 2 3", {-1, 3}, "symbolic, joined");
  reshape("2 1 6", {2, 6, 1, 1}, "ones");
  reshape("5 0 2", {0, -1, 1}, "copied and open");
  list.add("Reshape", "nothing",
           [](Builder& b) -> Operands {
             return {b.input("0 6"), b.ints({3, 0})};
           },
           {{"allowzero", int64_t{1}}});
  list.add("Flatten", "in the middle", [](Builder& b) -> Operands { return {b.input("2 3 4")}; },
           {{"axis", int64_t{2}}});
  list.add("Flatten", "negative", [](Builder& b) -> Operands { return {b.input("2 3 4")}; }, {{"axis", int64_t{-2}}});
  list.add("Flatten", "all", [](Builder& b) -> Operands { return {b.input("2 6")}; }, {{"axis", int64_t{0}}});
  list.add("Squeeze", "named", [](Builder& b) -> Operands { return {b.input("4 1 6"), b.ints({-2})}; });
  list.add("Squeeze", "all", [](Builder& b) -> Operands { return {b.input("1 4 1 3")}; });
  list.add("Unsqueeze", "front and back", [](Builder& b) -> Operands { return {b.input("4 6"), b.ints({0, -1})}; });
  list.add("Expand", "a new dimension", [](Builder& b) -> Operands { return {b.input("6 1"), b.ints({2, 6, 4})}; });
  list.add("Expand", "a scalar", [](Builder& b) -> Operands { return {b.input(""), b.ints({4, 3})}; });
  list.add("Expand", "a scalar to a scalar", [](Builder& b) -> Operands { return {b.input(""), b.ints({})}; });
  list.add("Expand", "symbolic", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 1"), b.ints({1, 4})}; });
  list.add("Shape", "of a symbolic tensor", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 4")}; });
  list.add("Shape", "its end", [](Builder& b) -> Operands { return {b.input("3 4 5")}; }, {{"start", int64_t{-2}}});
  list.add("Size", "of a symbolic tensor", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 4")}; });
}

void add_movement(CaseList& list) {
  list.add("Transpose", "reversed", [](Builder& b) -> Operands { return {b.input("4 6")}; });
  list.add("Transpose", "heads", [](Builder& b) -> Operands { return {b.input("2 3 4 2")}; },
           {{"perm", Ints{0, 2, 1, 3}}});
  list.add("Transpose", "symbolic bytes",
           [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 2 5", Fill::integers, DType::int8)}; },
           {{"perm", Ints{2, 0, 1}}});
  auto axis = [](int64_t at) { return Attribute{"axis", at}; };
  list.add("Concat", "rows", [](Builder& b) -> Operands { return {b.input("2 6"), b.input("3 6")}; }, {axis(0)});
  list.add("Concat", "columns of three",
           [](Builder& b) -> Operands {
             return {b.input("4 2"), b.input("4 0"), b.input("4 3")};
           },
           {axis(-1)});
  list.add("Concat", "symbolic",
           [](Builder& b) -> Operands {
             return {b.bind("b", 3).input("b 4"), b.input("b 4")};
           },
           {axis(1)});
  list.add(
      "Split", "equal", [](Builder& b) -> Operands { return {b.input("4 6")}; }, {axis(1), {"num_outputs", int64_t{2}}},
      kExact, 2);
  list.add(
      "Split", "a fused projection",
      [](Builder& b) -> Operands {
        return {b.input("2 12"), b.ints({4, 4, 4})};
      },
      {axis(-1)}, kExact, 3);
  list.add(
      "Split", "unequal",
      [](Builder& b) -> Operands {
        return {b.input("4 6"), b.ints({4, 0, 2})};
      },
      {axis(1)}, kExact, 3);
  list.add(
      "Split", "an uneven last piece", [](Builder& b) -> Operands { return {b.input("5 4")}; },
      {axis(0), {"num_outputs", int64_t{2}}}, kExact, 2);
  Attribute block{"blocksize", int64_t{2}};
  list.add("DepthToSpace", "depth first", [](Builder& b) -> Operands { return {b.input("2 12 3 2")}; }, {block});
  list.add("DepthToSpace", "columns first", [](Builder& b) -> Operands { return {b.input("2 12 3 2")}; },
           {block, {"mode", std::string("CRD")}});
  list.add("DepthToSpace", "blocks of three", [](Builder& b) -> Operands { return {b.input("1 18 2 1")}; },
           {{"blocksize", int64_t{3}}});
  list.add("SpaceToDepth", "blocks", [](Builder& b) -> Operands { return {b.input("2 3 4 6")}; }, {block});
  list.add("Trilu", "upper", [](Builder& b) -> Operands { return {b.input("5 6")}; });
  list.add("Trilu", "lower of a batch",
           [](Builder& b) -> Operands {
             return {b.input("2 4 6"), b.integer(1)};
           },
           {{"upper", int64_t{0}}});
  list.add("Trilu", "far below", [](Builder& b) -> Operands { return {b.input("6 4"), b.integer(-3)}; });
  list.add("Trilu", "symbolic", [](Builder& b) -> Operands { return {b.bind("s", 5).input("s s")}; });
}

void add_extents(CaseList& list) {
  list.add("Slice", "inner", [](Builder& b) -> Operands {
    return {b.input("4 6"), b.ints({1}), b.ints({-1}), b.ints({1})};
  });
  list.add("Slice", "strided and backwards", [](Builder& b) -> Operands {
    return {b.input("5 6 2"), b.ints({-1, 0}), b.ints({-10, 5}), b.ints({0, 1}), b.ints({-1, 2})};
  });
  list.add("Slice", "symbolic", [](Builder& b) -> Operands {
    return {b.bind("b", 4).input("b 4"), b.ints({0, 1}), b.ints({INT64_MAX, 3})};
  });
  auto mode = [](std::string name) { return Attribute{"mode", name}; };
  list.add("Pad", "zeros", [](Builder& b) -> Operands { return {b.input("4 6"), b.ints({0, 1, 0, 2})}; });
  list.add("Pad", "a value, some axes", [](Builder& b) -> Operands {
    return {b.input("2 4 3"), b.ints({1, -1}), b.number(7), b.ints({-1})};
  });
  list.add("Pad", "edge",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.ints({2, 0, 1, 0})};
           },
           {mode("edge")});
  list.add("Pad", "reflect",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.ints({0, 2, 0, 3})};
           },
           {mode("reflect")});
  list.add("Pad", "wrap",
           [](Builder& b) -> Operands {
             return {b.input("3 4"), b.ints({0, 1, 0, 1})};
           },
           {mode("wrap")});
  list.add("Tile", "both", [](Builder& b) -> Operands { return {b.input("4 3"), b.ints({2, 3})}; });
  list.add("Tile", "once", [](Builder& b) -> Operands { return {b.input("6 4"), b.ints({1, 2})}; });
  list.add("Tile", "symbolic", [](Builder& b) -> Operands { return {b.bind("b", 3).input("b 2"), b.ints({4, 1})}; });
}

void add_generators(CaseList& list) {
  list.add("Constant", "a matrix", [](Builder&) -> Operands { return {}; },
           {{"value", filled(DType::float32, {4, 6}, Fill::integers, 1)}});
  list.add("Constant", "a list", [](Builder&) -> Operands { return {}; }, {{"value_ints", Ints{3, 1, 2, 5}}});
  list.add("ConstantOfShape", "sevens",
           [](Builder& b) -> Operands {
             return {b.ints({4, 6})};
           },
           {{"value", Tensor::of<int32_t>(DType::int32, {1}, {7})}});
  list.add("ConstantOfShape", "float zeros", [](Builder& b) -> Operands { return {b.ints({12})}; });
  list.add("Range", "counting", [](Builder& b) -> Operands { return {b.integer(0), b.integer(12), b.integer(1)}; });
  list.add("Range", "down in steps", [](Builder& b) -> Operands {
    return {b.integer(9), b.integer(-4), b.integer(-2)};
  });
  list.add("Range", "floats", [](Builder& b) -> Operands { return {b.number(0), b.number(3), b.number(0.5)}; });
  list.add("EyeLike", "a diagonal above", [](Builder& b) -> Operands { return {b.input("4 6")}; }, {{"k", int64_t{1}}});
}

}  // namespace

std::vector<Subject> movement_cases() {
  CaseList list;
  add_reshapes(list);
  add_movement(list);
  add_extents(list);
  add_generators(list);
  return list.take();
}

}  // namespace tessera::property
