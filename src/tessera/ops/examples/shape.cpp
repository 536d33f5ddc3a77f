#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> reshape_examples(std::string_view) {
  return {
      {"a dimension in two", {input("4 6"), ints({4, 2, 3})}},
      {"two dimensions in one", {input("2 3 4"), ints({6, 4})}},
      {"heads", {input("2 12"), ints({2, 3, 4})}},
      {"across", {input("4 6"), ints({6, 4})}},
      {"across, in part", {input("4 6"), ints({8, 3})}},
      {"symbolic", {input("b=3 6"), ints({-1, 2, 3})}},
      {"symbolic, joined", {input("b=3 2 3"), ints({-1, 3})}},
      {"ones", {input("2 1 6"), ints({2, 6, 1, 1})}},
      {"copied and open", {input("5 0 2"), ints({0, -1, 1})}},
      {"nothing", {input("0 6"), ints({3, 0})}, {{"allowzero", int64_t{1}}}},
  };
}

std::vector<Example> flatten_examples(std::string_view) {
  return {
      {"in the middle", {input("2 3 4")}, {axis(2)}},
      {"negative", {input("2 3 4")}, {axis(-2)}},
      {"all", {input("2 6")}, {axis(0)}},
  };
}

std::vector<Example> squeeze_examples(std::string_view) {
  return {{"named", {input("4 1 6"), ints({-2})}}, {"all", {input("1 4 1 3")}}};
}

std::vector<Example> unsqueeze_examples(std::string_view) {
  return {{"front and back", {input("4 6"), ints({0, -1})}}};
}

std::vector<Example> expand_examples(std::string_view) {
  return {
      {"a new dimension", {input("6 1"), ints({2, 6, 4})}},
      {"a scalar", {input(""), ints({4, 3})}},
      {"a scalar to a scalar", {input(""), ints({})}},
      {"symbolic", {input("b=3 1"), ints({1, 4})}},
  };
}

std::vector<Example> shape_examples(std::string_view) {
  return {{"of a symbolic tensor", {input("b=3 4")}}, {"its end", {input("3 4 5")}, {{"start", int64_t{-2}}}}};
}

std::vector<Example> size_examples(std::string_view) {
  return {{"of a symbolic tensor", {input("b=3 4")}}};
}

}  // namespace tessera::ops
