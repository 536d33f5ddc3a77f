#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> transpose_examples(std::string_view) {
  using Ints = std::vector<int64_t>;
  return {
      {"reversed", {input("4 6")}},
      {"heads", {input("2 3 4 2")}, {{"perm", Ints{0, 2, 1, 3}}}},
      {"symbolic bytes", {input("b=3 2 5", integers, DType::int8)}, {{"perm", Ints{2, 0, 1}}}},
  };
}

std::vector<Example> concat_examples(std::string_view) {
  return {
      {"rows", {input("2 6"), input("3 6")}, {axis(0)}},
      {"columns of three", {input("4 2"), input("4 0"), input("4 3")}, {axis(-1)}},
      {"symbolic", {input("b=3 4"), input("b=3 4")}, {axis(1)}},
      // Pieces that ranks hold otherwise than their parts of the result.
      {"unequal pieces", {input("7 2"), input("1 2"), input("4 2")}, {axis(0)}},
      {"a short piece in front", {input("2 3"), input("9 3")}, {axis(0)}},
      {"an empty piece", {input("5 2"), input("0 2"), input("3 2")}, {axis(0)}},
      {"a piece of symbolic length", {input("3 2"), input("s=7 2")}, {axis(0)}},
  };
}

std::vector<Example> split_examples(std::string_view) {
  const Attribute two{"num_outputs", int64_t{2}};
  return {
      {"equal", {input("4 6")}, {axis(1), two}, none, 2},
      {"a fused projection", {input("2 12"), ints({4, 4, 4})}, {axis(-1)}, none, 3},
      {"unequal", {input("4 6"), ints({4, 0, 2})}, {axis(1)}, none, 3},
      {"an uneven last piece", {input("5 4")}, {axis(0), two}, none, 2},
  };
}

std::vector<Example> block_examples(std::string_view type) {
  const Attribute block{"blocksize", int64_t{2}};
  if (type == "SpaceToDepth") return {{"blocks", {input("2 3 4 6")}, {block}}};
  return {
      {"depth first", {input("2 12 3 2")}, {block}},
      {"columns first", {input("2 12 3 2")}, {block, {"mode", std::string("CRD")}}},
      {"blocks of three", {input("1 18 2 1")}, {{"blocksize", int64_t{3}}}},
  };
}

std::vector<Example> trilu_examples(std::string_view) {
  return {
      {"upper", {input("5 6")}},
      {"lower of a batch", {input("2 4 6"), integer(1)}, {{"upper", int64_t{0}}}},
      {"far below", {input("6 4"), integer(-3)}},
      {"symbolic", {input("s=5 s=5")}},
  };
}

}  // namespace tessera::ops
