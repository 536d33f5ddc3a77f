#include "tessera/ir/on_demand.h"

#include <algorithm>
#include <span>

#include "tessera/ir/hash.h"

namespace tessera {
namespace {

// An owner of nothing, from which the maker can be told.
struct Making {
  std::shared_ptr<const ElementMaker> maker;
  void operator()(const void*) const {}
};

// Elements [1, 3) of dimension 1 of a [2, 5] are the lines 1 2 and 6 7 of the whole.
class PartMaker : public ElementMaker {
 public:
  PartMaker(const Tensor& whole, std::shared_ptr<const ElementMaker> maker, size_t dim, int64_t start, int64_t size)
      : maker_(std::move(maker)), element_bytes_(bits_of(whole.dtype) / 8) {
    Hash identity;
    identity.add("part");
    identity.add_type(whole);
    for (uint64_t each : {origin_of(whole), uint64_t{dim}, static_cast<uint64_t>(start), static_cast<uint64_t>(size)})
      identity.add(each);
    identity_ = identity.value();
    const int64_t inner = count_of(std::span(whole.dims).subspan(dim + 1));
    line_ = size * inner;
    whole_line_ = whole.dims[dim] * inner;
    begin_ = start * inner;
  }

  void make(int64_t first, int64_t count, std::byte* to) const override {
    while (count > 0) {
      const int64_t run = std::min(count, line_ - first % line_);
      maker_->make(whole_index(first), run, to);
      first += run;
      count -= run;
      to += run * element_bytes_;
    }
  }

  void let_go(int64_t first, int64_t count) const override {
    if (count == 0) return;
    const int64_t last = first + count - 1, begin = whole_index(first);
    maker_->let_go(begin, whole_index(last) + 1 - begin);
  }

  std::optional<uint64_t> identity() const override { return identity_; }

  void add_sources(int64_t first, int64_t count, std::vector<SourceRange>& sources) const override {
    if (count == 0) return;
    const int64_t begin = whole_index(first);
    maker_->add_sources(begin, whole_index(first + count - 1) + 1 - begin, sources);
  }

 private:
  int64_t whole_index(int64_t index) const { return index / line_ * whole_line_ + begin_ + index % line_; }

  std::shared_ptr<const ElementMaker> maker_;
  uint64_t identity_ = 0;
  int64_t element_bytes_, line_ = 0, whole_line_ = 0, begin_ = 0;
};

const Making* making_of(const Tensor& tensor) {
  return tensor.data ? nullptr : std::get_deleter<Making>(tensor.owner);
}

}  // namespace

Tensor on_demand(DType dtype, Dims dims, std::shared_ptr<const ElementMaker> maker) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  tensor.owner = std::shared_ptr<const void>(static_cast<const void*>(nullptr), Making{std::move(maker)});
  return tensor;
}

const ElementMaker* maker_of(const Tensor& tensor) {
  const Making* making = making_of(tensor);
  return making ? making->maker.get() : nullptr;
}

Tensor part_on_demand(const Tensor& whole, size_t dim, int64_t start, int64_t size) {
  Dims dims = whole.dims;
  dims[dim] = size;
  return on_demand(whole.dtype, std::move(dims),
                   std::make_shared<PartMaker>(whole, making_of(whole)->maker, dim, start, size));
}

const Tensor* bytes_behind(const Tensor& tensor) {
  const ElementMaker* maker = maker_of(tensor);
  return maker ? maker->source() : tensor.data ? &tensor : nullptr;
}

uint64_t origin_of(const Tensor& tensor) {
  if (const Tensor* behind = bytes_behind(tensor)) return reinterpret_cast<uintptr_t>(behind->data);
  const ElementMaker* maker = maker_of(tensor);
  const std::optional<uint64_t> identity = maker ? maker->identity() : std::nullopt;
  return identity ? *identity : reinterpret_cast<uintptr_t>(maker);
}

void add_sources_of(const Tensor& tensor, int64_t first, int64_t count, std::vector<SourceRange>& sources) {
  if (const ElementMaker* maker = maker_of(tensor))
    maker->add_sources(first, count, sources);
  else if (tensor.data && count > 0)
    sources.push_back({&tensor, first, first + count});
}

Tensor made_whole(const Tensor& tensor) {
  const ElementMaker* maker = maker_of(tensor);
  if (!maker) return tensor;
  Tensor made = Tensor::uninitialized(tensor.dtype, tensor.dims);
  maker->make(0, made.count(), made.mutable_data());
  return made;
}

}  // namespace tessera
