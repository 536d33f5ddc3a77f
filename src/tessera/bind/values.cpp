#include "tessera/bind/values.h"

namespace tessera::bind {

Values::Values(Sizes sizes, std::shared_ptr<const Grouping> grouping)
    : sizes_(std::move(sizes)),
      grouping_(std::move(grouping)),
      views_(std::shared_ptr<const std::map<const Value*, Alias>>(grouping_, &grouping_->views)) {}

Values Values::at(Sizes sizes, const std::map<const Value*, Alias>& moved) const {
  Values values(std::move(sizes), grouping_);
  for (const auto& [value, view] : moved) values.views_.set(value, view);
  return values;
}

kernels::TensorDesc Values::type(const Value* value) const {
  kernels::TensorDesc type = sizes_.type(value);
  if (!value) return type;
  if (auto block = grouping_->blocked.find(value); block != grouping_->blocked.end()) type.block = block->second;
  if (const Alias* view = view_of(value)) type.strides = view->strides;
  return type;
}

const Value* Values::home(const Value* value) const {
  const Alias* view = view_of(value);
  return view ? view->base : value;
}

size_t Values::skip_of(const Alias& view, const Value* value) const {
  return bytes_of(value->dtype(), sizes_.type(value).count() ? view.offset : 0);
}

}  // namespace tessera::bind
