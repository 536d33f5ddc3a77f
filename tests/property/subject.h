#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "property/tolerance.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/example.h"
#include "tessera/runtime/executor.h"

namespace tessera::property {

using ops::Fill;

/// A graph that is to give the same results on every mesh, and what it is run on.
struct Subject {
  std::string name;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::map<std::string, Tensor> inputs;
  std::map<std::string, int64_t, std::less<>> symbols;
  Bound bound = kExact;

  /// Inputs, states and results: what an annotation may be about, in the graph's order.
  std::vector<const Value*> annotatable() const;
  /// The extents of a value with the subject's symbols.
  Dims dims_of(const Value* value) const;
};

/// Writes subjects down, as in
///
///     Builder builder("Gemm with a row of C");
///     Value* a = builder.input("4 6"), *b = builder.weight("6 8");
///     builder.output(builder.node("MatMul", {a, b}));
///
/// Extents are separated by spaces and may be symbols that `bind` has given a value. Elements depend on the seed, the
/// subject's name and the operand's place, not on what other tests ran before.
class Builder {
 public:
  explicit Builder(std::string name);

  Builder& bind(std::string_view symbol, int64_t value);
  Value* input(std::string_view extents, Fill fill = Fill::integers, DType dtype = DType::float32);
  Value* weight(std::string_view extents, Fill fill = Fill::integers, DType dtype = DType::float32);
  /// int64 numbers in [low, high).
  Value* indices(std::string_view extents, int64_t low, int64_t high, DType dtype = DType::int64);
  Value* ints(std::vector<int64_t> elements) { return subject_.graph->constant_int64(std::move(elements)); }
  Value* integer(int64_t element) { return subject_.graph->constant_int64({element}, true); }
  Value* number(double element, DType dtype = DType::float32) {
    return subject_.graph->constant_scalar(dtype, element);
  }
  Value* constant(Tensor data) { return subject_.graph->add_constant("", std::move(data)); }

  /// A node; returns its first result.
  Value* node(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {},
              std::string_view domain = "");
  /// A node with that many results.
  Node* node_of(size_t results, std::string_view type, std::vector<Value*> operands,
                std::vector<Attribute> attributes = {}, std::string_view domain = "");
  Builder& output(Value* value);

  /// Infers types. The bound holds for all outputs.
  Subject done(Bound bound = kExact);

 private:
  Value* source(std::string_view extents, DType dtype, Tensor data, bool state);
  Dims bound_dims(std::string_view extents) const;

  Subject subject_;
  uint64_t next_seed_;
};

/// A tensor filled as asked; the same for the same seed.
Tensor filled(DType dtype, const Dims& dims, Fill fill, uint64_t seed);

/// TESSERA_TEST_SEED, or a fixed number.
uint64_t base_seed();
/// A seed for something named, different for each name.
uint64_t seed_of(std::string_view name);

}  // namespace tessera::property
