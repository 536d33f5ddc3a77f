#include "property/cases.h"

namespace tessera::property {
namespace {

using Operands = std::vector<Value*>;

void add_gathers(CaseList& list) {
  list.add("Gather", "an embedding", [](Builder& b) -> Operands { return {b.weight("7 6"), b.indices("2 3", 0, 7)}; });
  list.add("Gather", "indices from the end", [](Builder& b) -> Operands {
    return {b.weight("12 4"), b.indices("5", -12, 12)};
  });
  list.add("Gather", "columns by int32",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.indices("3", -6, 6, DType::int32)};
           },
           {axis(1)});
  list.add("Gather", "by a scalar",
           [](Builder& b) -> Operands {
             return {b.input("4 6 2"), b.integer(-1)};
           },
           {axis(-2)});
  list.add("Gather", "symbolic indices", [](Builder& b) -> Operands {
    return {b.weight("8 4"), b.bind("b", 3).indices("b 2", 0, 8)};
  });
  list.add("Gather", "booleans", [](Builder& b) -> Operands {
    return {b.input("6 4", Fill::integers, DType::boolean), b.indices("4", 0, 6)};
  });
  list.add("Gather", "numbers that are not sums", [](Builder& b) -> Operands {
    return {b.input("6 4", Fill::special), b.indices("4", 0, 6)};
  });
  list.add("Gather", "no indices", [](Builder& b) -> Operands { return {b.input("6 4"), b.indices("0", 0, 6)}; });
  list.add("GatherElements", "columns",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.indices("4 3", -6, 6)};
           },
           {axis(1)});
  list.add("GatherElements", "fewer rows", [](Builder& b) -> Operands {
    return {b.input("4 6"), b.indices("2 6", 0, 4)};
  });
  list.add("GatherElements", "fewer rows and columns",
           [](Builder& b) -> Operands {
             return {b.input("4 7 5"), b.indices("3 5 4", -5, 5)};
           },
           {axis(2)});
  list.add("GatherElements", "fewer columns than ranks, from a weight",
           [](Builder& b) -> Operands {
             return {b.weight("5 2", Fill::special), b.indices("5 3", -2, 2, DType::int32)};
           },
           {axis(-1)});
  list.add("GatherElements", "symbolic",
           [](Builder& b) -> Operands {
             return {b.bind("b", 3).bind("v", 7).input("b v"), b.indices("b 1", -7, 7)};
           },
           {axis(1)});
  list.add("GatherND", "points", [](Builder& b) -> Operands { return {b.input("4 3 6"), b.indices("5 2", -3, 3)}; });
  list.add("GatherND", "in batches",
           [](Builder& b) -> Operands {
             return {b.input("4 3 6"), b.indices("4 2 1", 0, 3)};
           },
           {{"batch_dims", int64_t{1}}});
  list.add("GatherND", "symbolic, all dimensions indexed", [](Builder& b) -> Operands {
    return {b.bind("v", 7).bind("n", 5).input("v 3"), b.indices("n 2", -3, 3, DType::int32)};
  });
  list.add("GatherND", "of integers, with a batch, by two",
           [](Builder& b) -> Operands {
             return {b.input("2 5 3 2", Fill::small, DType::int64), b.indices("2 4 2", -3, 3)};
           },
           {{"batch_dims", int64_t{1}}});
}

void add_cache(CaseList& list) {
  const auto firsts = [](Builder& b, std::vector<int64_t> places) {
    const Dims dims = {static_cast<int64_t>(places.size())};
    return b.constant(Tensor::of<int64_t>(DType::int64, dims, places));
  };
  list.add("TensorScatter", "a cache of heads", [&](Builder& b) -> Operands {
    return {b.input("4 6 5 3"), b.input("4 6 2 3"), firsts(b, {0, 3, 1, 2})};
  });
  list.add("TensorScatter", "around the end",
           [&](Builder& b) -> Operands {
             return {b.input("2 4 6", Fill::special), b.input("2 3 6", Fill::special), firsts(b, {3, 1})};
           },
           {{"axis", int64_t{1}}, {"mode", std::string("circular")}});
  list.add("TensorScatter", "from the start, in the last dimension",
           [&](Builder& b) -> Operands {
             return {b.bind("b", 3).input("b 4 5"), b.input("b 4 2")};
           },
           {{"axis", int64_t{-1}}});
  list.add("TensorScatter", "in symbolic rows", [&](Builder& b) -> Operands {
    return {b.bind("t", 7).bind("u", 2).input("2 2 t 3"), b.input("2 2 u 3"), firsts(b, {5, 1})};
  });
  // Parts of caches, which begin at a row of their own.
  const auto part = [&](std::string_view what, const CaseList::Make& make, int64_t offset, int64_t rows,
                        std::vector<Attribute> attributes) {
    list.add(
        "TensorScatterShard", what,
        [=](Builder& b) {
          Operands operands = make(b);
          operands.resize(3);
          for (int64_t number : {offset, rows})
            operands.push_back(b.constant(Tensor::of<int64_t>(DType::int64, {}, {number})));
          return operands;
        },
        std::move(attributes), kExact, 1, "tessera");
  };
  const Attribute circular{"mode", std::string("circular")};
  part("some rows here, some before, some behind",
       [=](Builder& b) -> Operands {
         return {b.input("4 2 3 5"), b.input("4 2 2 5"), firsts(b, {0, 2, 3, 7})};
       },
       3, 9, {});
  part("from the start", [](Builder& b) -> Operands { return {b.input("2 3 4"), b.input("2 5 4")}; }, 2, 6, {});
  part("around the end",
       [=](Builder& b) -> Operands {
         return {b.input("3 4 2", Fill::special), b.input("3 4 5", Fill::special), firsts(b, {7, 11, 2})};
       },
       0, 8, {{"axis", int64_t{-1}}, circular});
  part("over its own rows",
       [=](Builder& b) -> Operands {
         return {b.input("2 2 3"), b.input("2 9 3"), firsts(b, {1, 6})};
       },
       2, 4, {circular});
}

void add_scatters(CaseList& list) {
  auto reduction = [](std::string name) { return Attribute{"reduction", name}; };
  // Distinct places: nothing defines which of two updates of one place wins.
  auto places = [](Builder& b) { return b.constant(Tensor::of<int64_t>(DType::int64, {3, 1}, {2, 0, 4})); };
  list.add("ScatterND", "rows", [&](Builder& b) -> Operands { return {b.input("5 6"), places(b), b.input("3 6")}; });
  for (std::string name : {"add", "mul", "max", "min"})
    list.add("ScatterND", "rows, " + name,
             [&](Builder& b) -> Operands {
               return {b.input("5 6"), b.indices("4 1", 0, 5), b.input("4 6")};
             },
             {reduction(name)});
  list.add("ScatterND", "elements",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.indices("5 2", 0, 4), b.input("5")};
           },
           {reduction("add")});
  list.add("ScatterND", "blocks from the ends", [](Builder& b) -> Operands {
    Value* places = b.constant(Tensor::of<int64_t>(DType::int64, {3, 2}, {0, -1, -3, 0, 2, 1}));
    return {b.input("3 2 4", Fill::special), places, b.input("3 4", Fill::special)};
  });
  for (std::string name : {"none", "add"})
    list.add("ScatterND", "into zeros, " + name,
             [&](Builder& b) -> Operands {
               return {b.constant(Tensor::zeros(DType::float32, {5, 6})), places(b), b.input("3 6")};
             },
             {reduction(name)});
  for (DType type : {DType::bfloat16, DType::float16, DType::int8})
    list.add(
        "ScatterND", "rows at several points, add, of " + std::string(name_of(type)),
        [=](Builder& b) -> Operands {
          return {b.input("5 6", Fill::small, type), b.indices("2 3 1", -5, 5), b.input("2 3 6", Fill::small, type)};
        },
        {reduction("add")});
  for (std::string name : {"add", "max", "min"})
    list.add("ScatterND", "rows of infinities, " + name,
             [&](Builder& b) -> Operands {
               return {b.input("5 6", Fill::special), b.indices("7 1", 0, 5), b.input("7 6", Fill::special)};
             },
             {reduction(name)});
  auto columns = [](Builder& b) {
    return b.constant(Tensor::of<int64_t>(DType::int64, {4, 2}, {0, 5, -1, 2, 3, 1, 4, 0}));
  };
  list.add("ScatterElements", "columns",
           [&](Builder& b) -> Operands {
             return {b.input("4 6"), columns(b), b.input("4 2")};
           },
           {axis(1)});
  for (std::string name : {"add", "mul", "max", "min"})
    list.add("ScatterElements", "columns, " + name,
             [&](Builder& b) -> Operands {
               return {b.bind("v", 5).input("4 v"), b.indices("4 3", -5, 5), b.input("4 3")};
             },
             {axis(-1), reduction(name)});
  list.add("ScatterElements", "fewer rows and columns",
           [](Builder& b) -> Operands {
             return {b.input("6 5 4"), b.indices("4 5 3", 0, 5), b.input("4 5 3")};
           },
           {axis(1), reduction("add")});
  list.add("ScatterElements", "columns of bfloat16, of which some are written twice",
           [](Builder& b) -> Operands {
             return {b.input("4 6", Fill::small, DType::bfloat16), b.indices("4 5", 0, 3),
                     b.input("4 5", Fill::small, DType::bfloat16)};
           },
           {axis(1), reduction("add")});
  list.add("ScatterElements", "into zeros, add",
           [&](Builder& b) -> Operands {
             return {b.constant(Tensor::zeros(DType::float32, {4, 6})), columns(b), b.input("4 2")};
           },
           {axis(1), reduction("add")});
  list.add("ScatterElements", "into zeros",
           [&](Builder& b) -> Operands {
             return {b.constant(Tensor::zeros(DType::float32, {4, 6})), columns(b), b.input("4 2")};
           },
           {axis(1)});
  list.add("ScatterElements", "sums",
           [](Builder& b) -> Operands {
             return {b.input("4 6"), b.indices("2 6", 0, 4), b.input("2 6")};
           },
           {axis(0), reduction("add")});
}

void add_choices(CaseList& list) {
  auto values = [](Builder& b) { return b.constant(Tensor::of<float>(DType::float32, {2}, {-1, 3})); };
  list.add("OneHot", "last", [&](Builder& b) -> Operands {
    return {b.indices("4 3", -5, 5), b.integer(5), values(b)};
  });
  list.add("OneHot", "in the middle, of a symbolic extent, indices beyond",
           [&](Builder& b) -> Operands {
             b.bind("b", 3);
             return {b.indices("b 2", -9, 9), b.integer(7), values(b)};
           },
           {axis(1)});
  list.add("OneHot", "of small integers",
           [&](Builder& b) -> Operands {
             return {b.input("5", Fill::small, DType::int8), b.integer(4), values(b)};
           },
           {axis(0)});
  list.add("OneHot", "first, values given",
           [&](Builder& b) -> Operands {
             return {b.indices("6", 0, 4), b.integer(4), b.input("2")};
           },
           {axis(0)});
  auto top = [&](std::string_view what, std::string_view extents, Fill fill, std::vector<Attribute> attributes) {
    list.add(
        "TopK", what,
        [&](Builder& b) -> Operands {
          return {b.weight(extents, fill), b.ints({3})};
        },
        std::move(attributes), kExact, 2);
  };
  top("largest", "4 6", Fill::ordered, {});
  top("ties go to the first", "4 6", Fill::small, {});
  top("smallest rows", "6 4", Fill::ordered, {axis(0), {"largest", int64_t{0}}});
  top("special values", "9 8", Fill::special_integers, {});
  top("smallest of special values", "9 8", Fill::special_integers, {{"largest", int64_t{0}}});
  top("all, sorted", "5 3", Fill::small, {});
  top("more than a rank has", "2 7", Fill::small, {});
  list.add(
      "TopK", "of a symbolic dimension",
      [](Builder& b) -> Operands {
        return {b.bind("s", 7).input("2 s", Fill::small, DType::int32), b.ints({2})};
      },
      {}, kExact, 2);
}

}  // namespace

std::vector<Subject> indexing_cases() {
  CaseList list;
  add_gathers(list);
  add_cache(list);
  add_scatters(list);
  add_choices(list);
  return list.take();
}

}  // namespace tessera::property
