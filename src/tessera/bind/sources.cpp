#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"
#include "tessera/bind/traits.h"

/// The places of what no step makes: inputs, constants, expressions, and states that never change.
namespace tessera::bind {
void Binding::place_sources() {
  if (!rank_->device().uses_host_memory())
    for (const auto& value : program_.graph->values())
      if (value->dtype() == DType::string)
        fail("bind", "'{}' has elements of type string, which the device '{}' cannot hold; use the cpu", value->name,
             rank_->device().name());
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const Value* value = program_.inputs[i].value;
    Box part = box(value);
    if (lies_in_input(part)) {
      locations_[value] = {Where::input, i, nullptr, skip_of(part, value)};
      continue;
    }
    constexpr int kBefore = -1;  // the first action
    const int buffer = new_buffer(bytes_of(value->dtype(), part.count()), {kBefore, last_use(value)},
                                  {value, fmt::format("'{}'", value->name)});
    locations_[value] = {Where::arena, static_cast<size_t>(buffer), nullptr, 0};
    CopiedBox copied(std::move(part), value->dtype());
    HostCopy copy{.port = i, .place = locations_[value], .box = std::move(copied.box), .element = copied.unit};
    copy.bytes = static_cast<size_t>(copy.box.count()) * copy.element;
    copy.staged = is_staged(copy.box);
    machine_.inputs.push_back(std::move(copy));
  }
  for (const auto& value : program_.graph->values()) {
    if (value->kind == ValueKind::constant) {
      const Tensor& there = rank_->constant(value.get());
      if (there.data != value->data.data) host_elements_[there.data] = value->data.data;
      locations_[value.get()] = {Where::fixed, 0, there.data, 0};
    } else if (value->kind == ValueKind::expression) {
      std::vector<int64_t> elements = bound(*value->content);
      place_expression(value.get(), elements);
      frame_->elements.emplace(value.get(), std::move(elements));
    }
  }
}

// Whether the rank's part of an input is used where the caller has it.
bool Binding::lies_in_input(const Box& part) const {
  return rank_->device().uses_host_memory() && part.contiguous();
}

// Whether the host must gather or scatter a part, because the device copies one piece.
bool Binding::is_staged(const Box& part) const {
  return !rank_->device().uses_host_memory() && !part.contiguous();
}

void Binding::place_expression(const Value* value, const std::vector<int64_t>& elements) {
  Dims dims = value->rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  Tensor tensor;
  if (value->dtype() == DType::int32)
    tensor = Tensor::of(DType::int32, dims, std::vector<int32_t>(elements.begin(), elements.end()));
  else if (value->dtype() == DType::boolean)
    tensor = Tensor::of(DType::boolean, dims, std::vector<uint8_t>(elements.begin(), elements.end()));
  else
    tensor = Tensor::of(DType::int64, dims, elements);
  const Tensor there = rank_->resident(tensor, value->name);
  bound_expressions_.push_back(tensor);
  if (there.data != tensor.data) {
    host_elements_[there.data] = tensor.data;
    bound_expressions_.push_back(there);
  }
  locations_[value] = {Where::fixed, 0, there.data, 0};
}

// Null: it has no place yet.
const Location* Binding::located(const Value* value) const {
  if (auto known = locations_.find(value); known != locations_.end()) return &known->second;
  auto known = frame_->locations.find(value);
  return known == frame_->locations.end() ? nullptr : &known->second;
}

// States are sliced only where they are used as they are: most weights are wanted packed.
const Location& Binding::locate(const Value* value) {
  if (const Location* known = located(value)) return *known;
  if (const Alias* view = view_of(value)) {
    Location place = locate(view->base);
    place.skip += skip_of(*view, value);
    return locations_[value] = place;
  }
  if (auto slot = frame_->slot_of.find(value); slot != frame_->slot_of.end())
    return locations_[value] = {Where::state, slot->second, nullptr, 0};
  if (value->kind != ValueKind::state) check(false, fmt::format("'{}' is placed before its use", value->name));
  return locations_[value] = {Where::fixed, 0, rank_->shard(value).data, 0};
}

// The elements of a step's operand, for the host, if no run changes them; else null.
const void* Binding::known_elements(int step, size_t index) {
  const Value* value = frame_->groups[step].inputs[index];
  if (!value || value->kind == ValueKind::input || value->producer || value->changing) return nullptr;
  if (packed_operand(step, index)) return nullptr;  // no kernel knows the packed bytes
  const Location place = place_of_operand(step, index);
  if (rank_->device().uses_host_memory()) return place.address;
  if (value->kind == ValueKind::state)
    return plain_desc(value).bytes() <= kMostKnown ? rank_->host_shard(value).data : nullptr;
  if (auto own = host_elements_.find(place.address); own != host_elements_.end()) return own->second;
  auto known = frame_->host_elements.find(place.address);
  return known != frame_->host_elements.end() ? known->second : place.address;
}

}  // namespace tessera::bind
