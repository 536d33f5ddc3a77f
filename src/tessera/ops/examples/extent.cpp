#include <cstdint>

#include "tessera/ops/examples/examples.h"

namespace tessera::ops {

using namespace example;

std::vector<Example> slice_examples(std::string_view) {
  return {
      {"inner", {input("4 6"), ints({1}), ints({-1}), ints({1})}},
      {"strided and backwards", {input("5 6 2"), ints({-1, 0}), ints({-10, 5}), ints({0, 1}), ints({-1, 2})}},
      {"symbolic", {input("b=4 4"), ints({0, 1}), ints({INT64_MAX, 3})}},
      // Of 1 to 5 ranks, some hold nothing of the result.
      {"every third", {input("11 6"), ints({1}), ints({11}), ints({0}), ints({3})}},
      {"backwards", {input("11 6"), ints({-2}), ints({0}), ints({0}), ints({-1})}},
      {"every second, backwards", {input("11 6"), ints({10}), ints({-12}), ints({0}), ints({-2})}},
      {"both dimensions", {input("11 6"), ints({3, 1}), ints({9, 5}), ints({0, 1}), ints({1, 2})}},
      {"the last", {input("11 6"), ints({-1}), ints({11}), ints({0}), ints({1})}},
  };
}

std::vector<Example> pad_examples(std::string_view) {
  const auto padded = [](std::string mode, std::string what, const char* data, std::vector<int64_t> pads) {
    const std::string name = what.empty() ? mode : mode + ", " + what;
    return Example{name, {input(data), ints(pads)}, {{"mode", mode}}};
  };
  return {
      {"zeros", {input("4 6"), ints({0, 1, 0, 2})}},
      {"a value, some axes", {input("2 4 3"), ints({1, -1}), number(7), ints({-1})}},
      {"more than there is", {input("3 4"), ints({4, 0, 5, 1})}},
      {"cut at one end, padded at the other", {input("9 4"), ints({-2, 0, 3, -1})}},
      {"a symbolic length", {input("s=7 2"), ints({2, 0, 1, 0})}},
      padded("edge", "", "4 6", {2, 0, 1, 0}),
      padded("edge", "more than there is", "3 4", {4, 0, 5, 1}),
      padded("edge", "one end only", "7 2", {0, 1, 3, 0}),
      padded("edge", "a symbolic length", "s=7 2", {2, 0, 1, 0}),
      padded("reflect", "", "4 6", {0, 2, 0, 3}),
      padded("reflect", "as much as there is", "6 4", {5, 0, 5, 3}),
      padded("reflect", "one end only", "7 2", {2, 0, 0, 1}),
      padded("wrap", "", "3 4", {0, 1, 0, 1}),
  };
}

std::vector<Example> tile_examples(std::string_view) {
  return {
      {"both", {input("4 3"), ints({2, 3})}},
      {"once", {input("6 4"), ints({1, 2})}},
      {"symbolic", {input("b=3 2"), ints({4, 1})}},
  };
}

}  // namespace tessera::ops
