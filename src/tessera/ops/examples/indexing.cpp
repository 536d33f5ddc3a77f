#include "tessera/ops/examples/examples.h"

namespace tessera::ops {
namespace {

using namespace example;

/// Places of one dimension and more, which the dimensions of the constant say.
ExampleOperand places(Dims dims, const std::vector<int64_t>& elements) {
  return constant(Tensor::of<int64_t>(DType::int64, std::move(dims), elements));
}

ExampleOperand zeros(Dims dims) {
  return constant(Tensor::zeros(DType::float32, std::move(dims)));
}

Attribute reduction(const char* name) {
  return {"reduction", std::string(name)};
}

}  // namespace

std::vector<Example> gather_examples(std::string_view) {
  return {
      {"an embedding", {weight("7 6"), indices("2 3", 0, 7)}},
      {"indices from the end", {weight("12 4"), indices("5", -12, 12)}},
      {"columns by int32", {input("4 6"), indices("3", -6, 6, DType::int32)}, {axis(1)}},
      {"by a scalar", {input("4 6 2"), integer(-1)}, {axis(-2)}},
      {"symbolic indices", {weight("8 4"), indices("b=3 2", 0, 8)}},
      {"booleans", {input("6 4", integers, DType::boolean), indices("4", 0, 6)}},
      {"numbers that are not sums", {input("6 4", special), indices("4", 0, 6)}},
      {"no indices", {input("6 4"), indices("0", 0, 6)}},
  };
}

std::vector<Example> gather_elements_examples(std::string_view) {
  return {
      {"columns", {input("4 6"), indices("4 3", -6, 6)}, {axis(1)}},
      {"fewer rows", {input("4 6"), indices("2 6", 0, 4)}},
      {"fewer rows and columns", {input("4 7 5"), indices("3 5 4", -5, 5)}, {axis(2)}},
      {"fewer columns than ranks, from a weight",
       {weight("5 2", special), indices("5 3", -2, 2, DType::int32)},
       {axis(-1)}},
      {"symbolic", {input("b=3 v=7"), indices("b=3 1", -7, 7)}, {axis(1)}},
  };
}

std::vector<Example> gather_nd_examples(std::string_view) {
  const Attribute batch{"batch_dims", int64_t{1}};
  return {
      {"points", {input("4 3 6"), indices("5 2", -3, 3)}},
      {"in batches", {input("4 3 6"), indices("4 2 1", 0, 3)}, {batch}},
      {"symbolic, all dimensions indexed", {input("v=7 3"), indices("n=5 2", -3, 3, DType::int32)}},
      {"of integers, with a batch, by two", {input("2 5 3 2", small, DType::int64), indices("2 4 2", -3, 3)}, {batch}},
  };
}

std::vector<Example> scatter_nd_examples(std::string_view) {
  // Distinct places: nothing defines which of two updates of one place wins.
  const ExampleOperand rows = places({3, 1}, {2, 0, 4});
  std::vector<Example> all = {
      {"rows", {input("5 6"), rows, input("3 6")}},
      {"elements", {input("4 6"), indices("5 2", 0, 4), input("5")}, {reduction("add")}},
      {"blocks from the ends", {input("3 2 4", special), places({3, 2}, {0, -1, -3, 0, 2, 1}), input("3 4", special)}},
  };
  for (const char* name : {"add", "mul", "max", "min"})
    all.push_back(
        {std::string("rows, ") + name, {input("5 6"), indices("4 1", 0, 5), input("4 6")}, {reduction(name)}});
  for (const char* name : {"none", "add"})
    all.push_back({std::string("into zeros, ") + name, {zeros({5, 6}), rows, input("3 6")}, {reduction(name)}});
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::int8})
    all.push_back({"rows at several points, add, of " + std::string(name_of(dtype)),
                   {input("5 6", small, dtype), indices("2 3 1", -5, 5), input("2 3 6", small, dtype)},
                   {reduction("add")}});
  for (const char* name : {"add", "max", "min"})
    all.push_back({std::string("rows of infinities, ") + name,
                   {input("5 6", special), indices("7 1", 0, 5), input("7 6", special)},
                   {reduction(name)}});
  return all;
}

std::vector<Example> scatter_elements_examples(std::string_view) {
  const ExampleOperand columns = places({4, 2}, {0, 5, -1, 2, 3, 1, 4, 0});
  std::vector<Example> all = {
      {"columns", {input("4 6"), columns, input("4 2")}, {axis(1)}},
      {"fewer rows and columns", {input("6 5 4"), indices("4 5 3", 0, 5), input("4 5 3")}, {axis(1), reduction("add")}},
      {"columns of bfloat16, of which some are written twice",
       {input("4 6", small, DType::bfloat16), indices("4 5", 0, 3), input("4 5", small, DType::bfloat16)},
       {axis(1), reduction("add")}},
      {"into zeros, add", {zeros({4, 6}), columns, input("4 2")}, {axis(1), reduction("add")}},
      {"into zeros", {zeros({4, 6}), columns, input("4 2")}, {axis(1)}},
      {"sums", {input("4 6"), indices("2 6", 0, 4), input("2 6")}, {axis(0), reduction("add")}},
  };
  for (const char* name : {"add", "mul", "max", "min"})
    all.push_back({std::string("columns, ") + name,
                   {input("4 v=5"), indices("4 3", -5, 5), input("4 3")},
                   {axis(-1), reduction(name)}});
  return all;
}

std::vector<Example> one_hot_examples(std::string_view) {
  const ExampleOperand values = numbers({-1, 3});
  return {
      {"last", {indices("4 3", -5, 5), integer(5), values}},
      {"in the middle, of a symbolic extent, indices beyond", {indices("b=3 2", -9, 9), integer(7), values}, {axis(1)}},
      {"of small integers", {input("5", small, DType::int8), integer(4), values}, {axis(0)}},
      {"first, values given", {indices("6", 0, 4), integer(4), input("2")}, {axis(0)}},
  };
}

std::vector<Example> top_k_examples(std::string_view) {
  const ExampleOperand three = ints({3});
  const Attribute smallest{"largest", int64_t{0}};
  return {
      {"largest", {weight("4 6", ordered), three}, {}, none, 2},
      {"ties go to the first", {weight("4 6", small), three}, {}, none, 2},
      {"smallest rows", {weight("6 4", ordered), three}, {axis(0), smallest}, none, 2},
      {"special values", {weight("9 8", special_integers), three}, {}, none, 2},
      {"smallest of special values", {weight("9 8", special_integers), three}, {smallest}, none, 2},
      {"all, sorted", {weight("5 3", small), three}, {}, none, 2},
      {"more than a rank has", {weight("2 7", small), three}, {}, none, 2},
      {"of a symbolic dimension", {input("2 s=7", small, DType::int32), ints({2})}, {}, none, 2},
  };
}

}  // namespace tessera::ops
