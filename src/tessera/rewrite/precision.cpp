#include "tessera/rewrite/precision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

bool stays_wide(const Node& node, size_t index) {
  const std::vector<size_t>& wide = ops::op_of(node).always_float32;
  return std::find(wide.begin(), wide.end(), index) != wide.end();
}

/// Attributes that name the result's type.
constexpr std::array<std::string_view, 2> kTypeAttributes = {"to", "dtype"};

/// The magnitudes that a 16-bit float can hold.
struct Range {
  float least, largest;
};

Range range_of(DType type) {
  return type == DType::bfloat16 ? Range{0x1p-133F, 0x1.fep127F} : Range{0x1p-24F, 65504};
}

template <typename T>
void round_elements(const float* wide, int64_t count, float largest, std::byte* narrow) {
  auto* to = reinterpret_cast<T*>(narrow);
  for (int64_t i = 0; i < count; ++i)
    to[i] = T(std::isfinite(wide[i]) ? std::clamp(wide[i], -largest, largest) : wide[i]);
}

void round_to(DType type, const float* wide, int64_t count, std::byte* narrow) {
  const float largest = range_of(type).largest;
  if (type == DType::bfloat16)
    round_elements<BFloat16>(wide, count, largest, narrow);
  else
    round_elements<Float16>(wide, count, largest, narrow);
}

template <typename T>
void widen_elements(const std::byte* narrow, int64_t count, std::byte* wide) {
  const auto* from = reinterpret_cast<const T*>(narrow);
  auto* to = reinterpret_cast<float*>(wide);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

/// Between float32 and a 16-bit float; `elements` are aligned.
void convert(DType from, const std::byte* elements, int64_t count, DType to, std::byte* converted) {
  if (from == DType::float32)
    round_to(to, reinterpret_cast<const float*>(elements), count, converted);
  else if (from == DType::bfloat16)
    widen_elements<BFloat16>(elements, count, converted);
  else
    widen_elements<Float16>(elements, count, converted);
}

/// Rounds or widens elements that are stored in a file or made by another maker.
class Conversion : public ElementMaker {
 public:
  Conversion(Tensor stored, DType type) : stored_(std::move(stored)), type_(type) {}

  void make(int64_t first, int64_t count, std::byte* to) const override {
    const DType from = stored_.dtype;
    const ElementMaker* maker = maker_of(stored_);
    if (!maker && is_aligned(stored_)) return convert(from, stored_.data + bytes_of(from, first), count, type_, to);
    constexpr int64_t kPiece = 16384;
    std::vector<float> piece(static_cast<size_t>(std::min(count, kPiece)));  // room for either type
    auto* elements = reinterpret_cast<std::byte*>(piece.data());
    for (int64_t at = 0; at < count; at += kPiece) {
      const int64_t size = std::min(kPiece, count - at);
      if (maker)
        maker->make(first + at, size, elements);
      else
        std::memcpy(elements, stored_.data + bytes_of(from, first + at), bytes_of(from, size));
      convert(from, elements, size, type_, to + bytes_of(type_, at));
    }
  }

  const Tensor* source() const override { return maker_of(stored_) ? nullptr : &stored_; }

  std::optional<uint64_t> identity() const override {
    Hash identity;
    identity.add("converted");
    identity.add_type(stored_);
    identity.add(origin_of(stored_));
    identity.add(name_of(type_));
    return identity.value();
  }

  void add_sources(int64_t first, int64_t count, std::vector<SourceRange>& sources) const override {
    add_sources_of(stored_, first, count, sources);
  }

  void let_go(int64_t first, int64_t count) const override { MappedFile::let_go(stored_, first, count); }

 private:
  Tensor stored_;
  DType type_;
};

/// Larger parameters are converted when ranks take their parts, so that no whole converted parameter is in memory.
constexpr size_t kMostConvertedAtOnce = size_t{64} << 10;

Tensor converted(const Tensor& stored, DType type) {
  const bool is_large = stored.data && stored.bytes > kMostConvertedAtOnce;
  if (maker_of(stored) || is_large) return on_demand(type, stored.dims, std::make_shared<Conversion>(stored, type));
  const Tensor held = aligned(stored);
  Tensor made = Tensor::uninitialized(type, held.dims);
  convert(held.dtype, held.data, held.count(), type, made.mutable_data());
  return made;
}

class PrecisionLowering {
 public:
  PrecisionLowering(Graph& graph, DType compute)
      : graph_(graph), compute_(compute), suffix_(fmt::format(".{}", name_of(compute))) {}

  void run() {
    mark();
    mark_beyond();
    for (Node* node : nodes_of(graph_))
      if (is_heavy(*node)) lower(*node);
    restore_outputs();
    graph_.erase_dead(true);
    ops::infer_types(graph_);
    graph_.verify("lower_precision");
  }

 private:
  static bool is_float32(const Value* value) { return value && value->dtype() == DType::float32; }

  void mark() {
    for (const auto& value : graph_.values())
      if (is_float32(value.get()) &&
          (value->kind == ValueKind::input || (value->kind == ValueKind::state && value->rank() >= 2)))
        heavy_.insert(value.get());
    for (const auto& node : graph_.nodes())
      if (std::any_of(node->inputs.begin(), node->inputs.end(),
                      [&](Value* operand) { return heavy_.contains(operand); }))
        for (Value* result : node->outputs)
          if (is_float32(result)) heavy_.insert(result);
  }

  // Nodes without float results (comparisons) need operands of one type too.
  bool is_heavy(const Node& node) const {
    auto heavy = [&](const Value* value) { return heavy_.contains(value); };
    return std::any_of(node.outputs.begin(), node.outputs.end(), heavy) ||
           std::any_of(node.inputs.begin(), node.inputs.end(), heavy);
  }

  // Marks float32 values that come from finite constants beyond the range of a 16-bit float: masks of the lowest
  // float32.
  void mark_beyond() {
    const float largest = range_of(compute_).largest;
    for (const Value* value : graph_.values_of(ValueKind::constant)) {
      if (!is_float32(value)) continue;
      const Tensor held = aligned(value->data);
      const auto elements = held.as<float>();
      if (std::any_of(elements.begin(), elements.end(),
                      [&](float e) { return std::isfinite(e) && std::abs(e) > largest; }))
        beyond_.insert(value);
    }
    for (const auto& node : graph_.nodes())
      if (std::any_of(node->inputs.begin(), node->inputs.end(),
                      [&](const Value* operand) { return beyond_.contains(operand); }))
        for (const Value* result : node->outputs)
          if (is_float32(result) && !heavy_.contains(result)) beyond_.insert(result);
  }

  // Otherwise a mask's lowest float32 would become infinite, if not here then with a score added to it, and a small
  // number that keeps a divisor from zero would become zero.
  Tensor within_range(const Tensor& stored) const {
    const auto [least, largest] = range_of(compute_);
    const Tensor held = aligned(stored);
    std::vector<float> within;
    within.reserve(static_cast<size_t>(held.count()));
    for (float element : held.as<float>()) {
      const float size = std::abs(element);
      if (std::isfinite(element) && size > largest) element = std::copysign(largest / 2, element);
      if (size > 0 && size < least) element = std::copysign(least, element);
      within.push_back(element);
    }
    return Tensor::of(DType::float32, held.dims, within);
  }

  // The same for values that a run computes; infinities stay.
  Value* within_range(Value* value, const Node& before) {
    if (!beyond_.contains(value)) return value;
    const float bound = range_of(compute_).largest / 2;
    Value* clipped =
        emit(graph_, "Clip",
             {value, graph_.constant_scalar(DType::float32, -bound), graph_.constant_scalar(DType::float32, bound)},
             &before);
    return emit(graph_, "Where", {emit(graph_, "IsInf", {value}, &before), value, clipped}, &before);
  }

  void lower(Node& node) {
    for (std::string_view attribute : kTypeAttributes)
      if (const int64_t* type = node.get<int64_t>(attribute); type && *type == static_cast<int64_t>(DType::float32))
        node.set(attribute, static_cast<int64_t>(compute_));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!stays_wide(node, i) && is_float32(node.inputs[i]) &&
          !(heavy_.contains(node.inputs[i]) && node.inputs[i]->producer))
        graph_.set_input(&node, i, narrow(node.inputs[i], node));
    for (Value* result : node.outputs)
      if (is_float32(result)) result->type.dtype = compute_;
  }

  Value* narrow(Value* value, const Node& before) {
    Value*& known = narrow_[value];
    if (known) return known;
    if (value->kind == ValueKind::state && value->next) {
      value->data = converted(value->data, compute_);
      value->type.dtype = compute_;
      known = value;
    } else if (value->kind == ValueKind::state && !value->changing) {
      // If no float32 node reads the wide form in the end, restore_outputs() gives its name to this one.
      known = graph_.add_state(value->name + suffix_, converted(value->data, compute_));
    } else if (value->kind == ValueKind::constant) {
      known = graph_.add_constant(value->name, made_whole(converted(within_range(value->data), compute_)));
    } else {
      known = emit(graph_, "Cast", {within_range(value, before)}, &before,
                   {attribute("to", static_cast<int64_t>(compute_))}, value->name + suffix_);
    }
    return known;
  }

  void restore_outputs() {
    // If nothing reads the wide form of a state, the narrow form takes its name.
    for (auto& [wide, narrow] : narrow_)
      if (wide->kind == ValueKind::state && wide->uses.empty() && !wide->changing) {
        std::string name = wide->name;
        graph_.rename(wide, name + ".float32");
        graph_.rename(narrow, name);
        narrow->extra = wide->extra;
        narrow->rows = wide->rows;
      }
    for (Value*& output : graph_.outputs) {
      if (!heavy_.contains(output) || output->dtype() != compute_) continue;
      std::string name = output->name;
      graph_.rename(output, name + suffix_);
      Node* cast = graph_.add_node("Cast", {output}, {name});
      cast->set("to", static_cast<int64_t>(DType::float32));
      cast->outputs[0]->type = {DType::float32, output->type.shape};
      output = cast->outputs[0];
    }
  }

  Graph& graph_;
  DType compute_;
  std::string suffix_;  // of the names of narrow forms
  std::set<const Value*> heavy_, beyond_;
  std::map<Value*, Value*> narrow_;
};

}  // namespace

Tensor widened(const Tensor& narrow) {
  return converted(narrow, DType::float32);
}

bool only_moves(const Value& state) {
  const Node* maker = state.next ? state.next->producer : nullptr;
  return maker && maker->input(0) == &state && ops::moves_of(*maker) != ops::Moves::nothing;
}

void lower_precision(OnnxModel& model, DType compute) {
  if (compute == DType::float32) return;
  check(compute == DType::bfloat16 || compute == DType::float16, "models compute in float32 or a 16-bit float");
  PrecisionLowering(*model.graph, compute).run();
}

}  // namespace tessera::rewrite
