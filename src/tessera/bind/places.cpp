#include "tessera/bind/places.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"

namespace tessera::bind {

Places Places::fresh() const {
  Places places(rank_);
  places.by_value_ = by_value_.fresh();
  return places;
}

const Location& Places::locate(const Values& values, const Value* value) {
  if (const Location* known = find(value)) return *known;
  if (const Alias* view = values.view_of(value)) {
    Location place = locate(values, view->base);
    place.skip += values.skip_of(*view, value);
    return put(value, place);
  }
  if (value->kind != ValueKind::state) check(false, fmt::format("'{}' is placed before its use", value->name));
  return put(value, {Location::Where::fixed, 0, rank_->shard(value).data, 0});
}

KnownElements KnownElements::fresh() const {
  KnownElements elements(rank_);
  elements.shared_ = shared_;
  elements.on_host_ = on_host_.fresh();
  return elements;
}

Location KnownElements::place_constant(const Value* constant) {
  const Tensor& there = rank_->constant(constant);
  if (there.data != constant->data.data) on_host_.set(there.data, constant->data.data);
  return {Location::Where::fixed, 0, there.data, 0};
}

Location KnownElements::place_expression(const Value* expression, const std::vector<int64_t>& elements) {
  const Dims dims = expression->rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  Tensor tensor;
  if (expression->dtype() == DType::int32)
    tensor = Tensor::of(DType::int32, dims, std::vector<int32_t>(elements.begin(), elements.end()));
  else if (expression->dtype() == DType::boolean)
    tensor = Tensor::of(DType::boolean, dims, std::vector<uint8_t>(elements.begin(), elements.end()));
  else
    tensor = Tensor::of(DType::int64, dims, elements);
  const Tensor there = rank_->resident(tensor, expression->name);
  tensors_.push_back(tensor);
  if (there.data != tensor.data) {
    on_host_.set(there.data, tensor.data);
    tensors_.push_back(there);
  }
  return {Location::Where::fixed, 0, there.data, 0};
}

bool KnownElements::may_know(const Value* value) {
  return value && value->kind != ValueKind::input && !value->producer && !value->changing;
}

const void* KnownElements::of(const Value* value, const Location& place, const Sizes& sizes) const {
  if (rank_->device().uses_host_memory()) return place.address;
  if (value->kind == ValueKind::state)
    return sizes.type(value).bytes() <= kMostKnown ? rank_->host_shard(value).data : nullptr;
  const void* const* on_host = on_host_.find(place.address);
  return on_host ? *on_host : place.address;
}

void KnownElements::share() {
  shared_ = std::make_shared<const std::vector<Tensor>>(std::exchange(tensors_, {}));
  on_host_.share();
}

void KnownElements::abandon() const {
  keep_for_good(tensors_);
  keep_for_good(shared_);
}

}  // namespace tessera::bind
