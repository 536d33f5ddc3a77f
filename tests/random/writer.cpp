#include "random/writer.h"

#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ops/op.h"

namespace tessera::random {
namespace {

template <typename T>
Tensor numbers(DType dtype, const Dims& dims, const std::vector<int64_t>& values) {
  std::vector<T> elements;
  for (int64_t value : values) elements.push_back(static_cast<T>(value));
  return Tensor::of(dtype, dims, elements);
}

template <typename T>
Tensor halves(DType dtype, const Dims& dims, const std::vector<int64_t>& values) {
  std::vector<uint16_t> bits;
  for (int64_t value : values) bits.push_back(T(static_cast<float>(value)).bits);
  return Tensor::of(dtype, dims, bits);
}

Tensor tensor_of(DType dtype, const Dims& dims, const std::vector<int64_t>& values) {
  switch (dtype) {
    case DType::float32:
      return numbers<float>(dtype, dims, values);
    case DType::float64:
      return numbers<double>(dtype, dims, values);
    case DType::float16:
      return halves<Float16>(dtype, dims, values);
    case DType::bfloat16:
      return halves<BFloat16>(dtype, dims, values);
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
      return numbers<uint8_t>(dtype, dims, values);
    case DType::int32:
      return numbers<int32_t>(dtype, dims, values);
    default:
      tessera::check(dtype == DType::int64, "programs are of types that are filled here");
      return numbers<int64_t>(dtype, dims, values);
  }
}

bool is_number(const Value* value) {
  return is_float(value->dtype()) || is_integer(value->dtype());
}

}  // namespace

double exact_limit(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0x1p22;
    case DType::float64:
    case DType::int64:
      return 0x1p40;
    case DType::int32:
      return 0x1p29;
    case DType::float16:
      return 0x1p10;
    case DType::bfloat16:
      return 0x1p7;
    default:
      return 100;
  }
}

Dims Writer::dims(const Value* value) const {
  Dims dims;
  for (const Expr& e : value->shape()) dims.push_back(extent(e));
  return dims;
}

Value* Writer::pick_number() {
  return pick(is_number);
}
Value* Writer::pick_float() {
  return pick([](const Value* value) { return is_float(value->dtype()); });
}
Value* Writer::pick_exact() {
  return pick([&](const Value* value) { return is_number(value) && facts(value).exact; });
}
Value* Writer::pick_of_rank(size_t least, size_t most) {
  return pick([&](const Value* value) { return is_number(value) && value->rank() >= least && value->rank() <= most; });
}

Shape Writer::random_shape(size_t least_rank, size_t most_rank) {
  static const std::vector<int64_t> kExtents = {1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 12};
  static const std::vector<int64_t> kRows = {64, 72, 96, 130};  // long enough for element-wise nodes to go together
  constexpr int64_t kMostElements = 1500;
  Shape shape;
  int64_t elements = 1;
  auto rank = static_cast<size_t>(between(static_cast<int64_t>(least_rank), static_cast<int64_t>(most_rank)));
  while (shape.size() < rank) {
    Expr next = one_in(60) ? Expr(0) : Expr(one_of(kExtents));
    if (one_in(5)) {
      std::string symbol = one_of<std::string>({"b", "s"});
      auto bound = program_.symbols.emplace(symbol, one_in(20) ? 0 : between(1, 6));
      (void)bound;
      next = *Expr::parse(symbol);
      if (one_in(4)) next = one_in(2) ? 2 * next : next + 1;  // as exporters write multiples and neighbours
    }
    if (shape.size() + 1 == rank && one_in(6)) next = Expr(one_of(kRows));
    if (elements * extent(next) > kMostElements) next = 1;
    elements *= extent(next);
    shape.push_back(next);
  }
  return shape;
}

Value* Writer::source(const Shape& shape, DType dtype, double bound) {
  const bool is_unsigned = dtype == DType::uint8 || dtype == DType::boolean;
  const auto high = dtype == DType::boolean ? 1 : static_cast<int64_t>(bound);
  Dims concrete;
  for (const Expr& e : shape) concrete.push_back(std::max<int64_t>(0, extent(e)));  // s - 1 of none: will be refused
  std::vector<int64_t> values(static_cast<size_t>(count_of(concrete)));
  for (int64_t& value : values) value = between(is_unsigned ? 0 : -high, high);
  Tensor data = tensor_of(dtype, concrete, values);
  if (specials_ && dtype == DType::float32 && one_in(3)) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    auto* elements = reinterpret_cast<float*>(data.mutable_data());
    for (int64_t more = between(1, 3); more > 0 && data.count() > 0; --more)
      elements[between(0, data.count() - 1)] =
          one_of<float>({kInfinity, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()});
  }
  const bool is_state = constants_of(shape) && !shape.empty() && is_float(dtype) && one_in(2);
  Value* made = is_state ? graph().add_state("w" + std::to_string(next_++), data)
                         : graph().add_input("x" + std::to_string(next_++), {dtype, shape});
  if (!is_state) program_.inputs[made->name] = std::move(data);
  program_.facts[made->name] = {static_cast<double>(high), true};
  pool_.push_back(made);
  return made;
}

Value* Writer::indices(const Shape& shape, int64_t low, int64_t high) {
  Dims concrete;
  for (const Expr& e : shape) concrete.push_back(std::max<int64_t>(0, extent(e)));  // s - 1 of none: will be refused
  std::vector<int64_t> values(static_cast<size_t>(count_of(concrete)));
  for (int64_t& value : values) value = between(low, high);
  Tensor data = Tensor::of(DType::int64, concrete, values);
  std::string name = "i" + std::to_string(next_++);
  const bool is_fixed = constants_of(shape).has_value();
  Value* made =
      is_fixed && one_in(3) ? graph().add_constant(name, data) : graph().add_input(name, {DType::int64, shape});
  if (made->kind == ValueKind::input) program_.inputs[made->name] = std::move(data);
  program_.facts[made->name] = {static_cast<double>(std::max(std::abs(low), std::abs(high))), true};
  return made;
}

Value* Writer::companion(const Value* value) {
  const Shape& shape = value->shape();
  auto fits = [&](const Value* other) {
    if (other->dtype() != value->dtype() || other->rank() > shape.size()) return false;
    for (size_t d = 0; d < other->rank(); ++d) {
      const Expr& extent = other->shape()[other->rank() - 1 - d];
      if (!extent.is(1) && !(extent == shape[shape.size() - 1 - d])) return false;
    }
    return true;
  };
  Value* old = one_in(3) ? nullptr : pick(fits);
  if (old && old != value) return old;
  Shape small = shape;
  for (Expr& e : small)
    if (one_in(4)) e = 1;
  if (one_in(2) && !small.empty())
    small.erase(small.begin(), small.begin() + between(0, static_cast<int64_t>(small.size()) - 1));
  return source(small, value->dtype());
}

Value* Writer::given(Tensor data, bool is_state) {
  Shape shape(data.dims.begin(), data.dims.end());
  Value* made = is_state ? graph().add_state("w" + std::to_string(next_++), data)
                         : graph().add_input("x" + std::to_string(next_++), {data.dtype, shape});
  if (!is_state) program_.inputs[made->name] = std::move(data);
  program_.facts[made->name] = {1e6, true};
  return made;
}

Node* Writer::copy(const Node& node, const std::vector<Value*>& operands, std::map<const Value*, Value*>& known) {
  std::vector<std::string> names;
  for (size_t r = 0; r < node.outputs.size(); ++r) names.push_back("y" + std::to_string(next_++));
  Node* copied = graph().add_node(node.op_type, operands, names, node.domain);
  copied->attributes = node.attributes;
  try {
    ops::op_of(*copied).infer(*copied);
  } catch (const Error& error) {
    tessera::check(error.kind() == ErrorKind::user, "inference refuses operands as the user's mistake");
    graph().erase(copied);
    return nullptr;
  }
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    known[node.outputs[r]] = copied->outputs[r];
    program_.facts[copied->outputs[r]->name] = {0x1p16, false};
  }
  return copied;
}

void Writer::offer(Value* value, Facts facts) {
  // Only exact floats of 16 bits may go on: the tolerance is that of float32.
  constexpr DType kFilled[] = {DType::float32, DType::float64, DType::int8, DType::uint8,
                               DType::boolean, DType::int32,   DType::int64};
  program_.facts[value->name] = facts;
  if (std::find(std::begin(kFilled), std::end(kFilled), value->dtype()) == std::end(kFilled)) return;
  if (std::find(pool_.begin(), pool_.end(), value) == pool_.end()) pool_.push_back(value);
}

Node* Writer::node(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes, Facts facts,
                   size_t results) {
  std::vector<std::string> names(results);
  for (std::string& name : names) name = "y" + std::to_string(next_++);
  Node* node = graph().add_node(type, std::move(operands), names);
  node->attributes = std::move(attributes);
  bool is_good = true;
  try {
    ops::op_of(*node).infer(*node);
    for (const Value* result : node->outputs) {
      constexpr int64_t kMostElements = 20000;
      is_good &= !facts.exact || facts.bound <= exact_limit(result->dtype());
      is_good &= count_of(dims(result)) <= kMostElements && result->rank() <= 6;
    }
  } catch (const Error& error) {
    tessera::check(error.kind() == ErrorKind::user, "inference refuses operands as the user's mistake");
    is_good = false;
  }
  if (!is_good) {
    graph().erase(node);
    return nullptr;
  }
  for (Value* result : node->outputs) {
    program_.facts[result->name] = result->dtype() == DType::boolean ? Facts{1, true} : facts;
    pool_.push_back(result);
  }
  return node;
}

}  // namespace tessera::random
