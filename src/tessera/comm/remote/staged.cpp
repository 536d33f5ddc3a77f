#include "tessera/comm/remote/staged.h"

#include <array>
#include <cstring>

#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

std::unique_ptr<std::byte[]> buffer_of(int64_t count, size_t element_bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count) * element_bytes);
}

bool is_blocked(Kind kind) {
  return kind == Kind::all_gather || kind == Kind::reduce_scatter || kind == Kind::gather || kind == Kind::scatter;
}

}  // namespace

Staged::Staged(const Operation& operation, int member, int size, bool library_adds)
    : member_(member), size_(static_cast<size_t>(size)), dtype_(operation.dtype), reduction_(operation.reduction) {
  operation_.assign(operation);
  in_ = operation.in;
  out_ = operation.out;
  const int bits = operation.kind == Kind::barrier ? 8 : bits_of(operation.dtype);
  // Elements of less than a byte are moved as the bytes that they fill.
  element_bytes_ = bits % 8 == 0 ? static_cast<size_t>(bits) / 8 : 1;
  count_ = bits % 8 == 0 ? operation.count : static_cast<int64_t>(byte_count(operation, operation.count));
  const int64_t inner = bits % 8 == 0 ? operation.inner : operation.inner * bits / 8;
  const bool exchanges = operation.kind == Kind::all_to_all;
  if (exchanges || is_blocked(operation.kind))
    for (int64_t count : operation.counts)
      counts_.push_back(exchanges ? count * inner : operation.outer * count * inner);
  if (exchanges)
    for (int64_t count : operation.recv_counts) recv_counts_.push_back(count * inner);
  packs_ = is_blocked(operation.kind) && operation.outer > 1 && size_ > 1;
  const bool scatters = operation.kind == Kind::reduce_scatter;
  if (library_adds && (operation.kind == Kind::all_reduce || operation.kind == Kind::reduce || scatters))
    stage_reduction();
  else if (packs_)
    stage_moves();
}

void Staged::stage_moves() {
  const bool root = member_ == operation_->root;
  const bool collects = operation_->kind == Kind::all_gather || (operation_->kind == Kind::gather && root);
  if (collects) {
    staged_out_ = buffer_of(sum_of(counts_), element_bytes_);
    out_ = staged_out_.get();
    unpacks_ = true;
  } else if (operation_->kind == Kind::reduce_scatter || (operation_->kind == Kind::scatter && root)) {
    staged_in_ = buffer_of(sum_of(counts_), element_bytes_);
    pack(static_cast<const std::byte*>(operation_->in), staged_in_.get());
    in_ = staged_in_.get();
  }
}

void Staged::stage_reduction() {
  const bool scatters = operation_->kind == Kind::reduce_scatter;
  dtype_ = wide_type(operation_->dtype);
  if (reduction_ == Reduction::mean) reduction_ = Reduction::sum;
  if (operation_->dtype == DType::boolean && reduction_ == Reduction::sum) reduction_ = Reduction::max;
  widens_ = dtype_ != operation_->dtype;
  if (scatters)
    result_count_ = counts_[member_];
  else if (operation_->kind == Kind::all_reduce || member_ == operation_->root)
    result_count_ = count_;
  const size_t wide_bytes = bytes_of(dtype_, 1);
  if (widens_ || (scatters && packs_)) {
    const int64_t count = scatters ? sum_of(counts_) : count_;
    staged_in_ = buffer_of(count, wide_bytes);
    if (scatters && packs_)
      pack(static_cast<const std::byte*>(operation_->in), staged_in_.get());
    else
      widen_elements(operation_->dtype, operation_->in, staged_in_.get(), count);
    in_ = staged_in_.get();
  }
  if (widens_ && scatters) {
    staged_out_ = buffer_of(result_count_, wide_bytes);
    out_ = staged_out_.get();
  } else if (widens_) {
    out_ = staged_in_.get();  // the library reduces in place
  }
}

template <typename Copy>
void Staged::each_row(Copy copy) const {
  const int64_t outer = operation_->outer;
  int64_t whole = 0;
  for (int64_t o = 0; o < outer; ++o) {
    int64_t before = 0;
    for (size_t j = 0; j < size_; ++j) {
      const int64_t row = counts_[j] / outer;
      if (row > 0) copy(whole, before + o * row, row);
      whole += row;
      before += counts_[j];
    }
  }
}

void Staged::pack(const std::byte* whole, std::byte* blocks) const {
  const size_t wide_bytes = widens_ ? bytes_of(dtype_, 1) : element_bytes_;
  each_row([&](int64_t from, int64_t to, int64_t count) {
    const std::byte* row = whole + static_cast<size_t>(from) * element_bytes_;
    std::byte* block = blocks + static_cast<size_t>(to) * wide_bytes;
    if (widens_)
      widen_elements(operation_->dtype, row, block, count);
    else
      std::memcpy(block, row, static_cast<size_t>(count) * element_bytes_);
  });
}

void Staged::unpack(const std::byte* blocks, std::byte* whole) const {
  each_row([&](int64_t to, int64_t from, int64_t count) {
    std::memcpy(whole + static_cast<size_t>(to) * element_bytes_, blocks + static_cast<size_t>(from) * element_bytes_,
                static_cast<size_t>(count) * element_bytes_);
  });
}

void Staged::combine(void* out, const void* a, const void* b, int64_t count) const {
  const std::array<const void*, 2> inputs{a, b};
  const std::array<void*, 1> outputs{out};
  reduce_elements(dtype_, reduction_, inputs, outputs, count);
}

void Staged::finish() {
  // The library's result, if it reduces.
  if (result_count_ > 0 && (widens_ || operation_->reduction == Reduction::mean))
    narrow_elements(operation_->dtype, operation_->reduction, static_cast<int64_t>(size_), out_, operation_->out,
                    result_count_);
  if (unpacks_) unpack(staged_out_.get(), static_cast<std::byte*>(operation_->out));
}

}  // namespace tessera::comm
