#include "tessera/runtime/rank_memory.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/bind/rank.h"
#include "tessera/ir/pages.h"

namespace tessera::runtime {

std::byte* RankMemory::arena(size_t bytes) {
  if (bytes > arena_room_) {
    // An arena that has grown once, such as a decoder's, will grow again. Spare pages that nobody touches cost nothing.
    const bool grows = arena_room_ > 0 && device_->uses_host_memory();
    const size_t room = grows ? std::max(bytes, arena_room_ + arena_room_ / 8) : bytes;
    arena_.reset();
    arena_held_.reset();
    arena_room_ = arena_bytes_ = 0;
    if (device::MemoryLimit* own = device_->limit()) arena_held_ = own->hold(room, "a rank's arena");
    arena_ = allocate(room, "a rank's arena");
    arena_room_ = room;
  }
  arena_bytes_ = std::max(arena_bytes_, bytes);
  return arena_.get();
}

std::byte* RankMemory::staging(size_t bytes) {
  if (bytes > staging_bytes_) {
    staging_.reset();
    staging_bytes_ = 0;
    staging_ = device_->allocate_staging(bytes, "the host's copies of inputs and outputs");
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

size_t RankMemory::bytes_to_run(const bind::MachineProgram& machine) const {
  return std::max(arena_bytes_, machine.arena_bytes) + std::max(staging_bytes_, machine.staging_bytes);
}

void RankMemory::require_room(const bind::MachineProgram& machine,
                              const std::function<std::vector<device::NamedBytes>()>& pieces) const {
  if (const device::MemoryLimit* own = device_->limit())
    own->require_plan(std::max(arena_bytes_, machine.arena_bytes), pieces, arena_room_);
}

void RankMemory::abandon() {
  keep_for_good(std::exchange(arena_, nullptr));
  keep_for_good(std::exchange(arena_held_, nullptr));
  arena_room_ = arena_bytes_ = 0;
}

std::unique_ptr<RankMemory> LimitedMemory::another(Communicators& communicators, Queues& queues) const {
  return std::make_unique<LimitedMemory>(device(), limit_, room_, communicators, queues);
}

const device::MemoryLimit* LimitedMemory::limit() const {
  const device::MemoryLimit* own = device()->limit();
  return own && own->bytes() < limit_.bytes() ? own : &limit_;
}

std::shared_ptr<const void> LimitedMemory::reserve(size_t bytes) {
  check(!reserved_, "a rank packs one weight at a time");
  reserved_.emplace(room_, bytes);
  return {&reserved_, [](auto* reserved) { reserved->reset(); }};
}

std::shared_ptr<const void> LimitedMemory::hold_on_host(size_t bytes, std::string_view what) {
  const auto room = reserved_ ? nullptr : reserve(bytes);
  auto held = limit_.hold(bytes, what);
  reserved_->use(bytes);
  return held;
}

std::shared_ptr<const void> LimitedMemory::hold(size_t bytes, std::string_view what) {
  auto held = hold_on_host(bytes, what);
  device::MemoryLimit* own = device()->limit();
  if (!own) return held;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<Both>(std::move(held), own->hold(bytes, what));
}

device::Memory LimitedMemory::allocate(size_t bytes, const char* what) {
  return device()->allocate(bytes, what,
                            [this](size_t size, const char* name) { return communicators_.shared_memory(size, name); });
}

Tensor LimitedMemory::on_host(DType dtype, Dims dims, std::string_view what) {
  auto held = hold_on_host(bytes_of(dtype, count_of(dims)), what);
  return device::MemoryLimit::released_with(Tensor::uninitialized(dtype, std::move(dims)), std::move(held));
}

Tensor LimitedMemory::on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) {
  Tensor tensor = on_host(dtype, std::move(dims), what);
  fill(tensor.mutable_data());
  return tensor;
}

Tensor LimitedMemory::resident(const Tensor& tensor, std::string_view name) {
  if (device()->uses_host_memory()) return tensor;
  auto held = hold(tensor.bytes, fmt::format("the device's copy of '{}'", name));
  Tensor copy = tensor;
  const device::Memory memory = allocate(tensor.bytes, "a tensor");
  copy.owner = memory;
  copy.data = memory.get();
  copy.writable = nullptr;
  queues_.compute().copy(memory.get(), tensor.data, tensor.bytes, device::Direction::to_device);
  queues_.finish();
  return device::MemoryLimit::released_with(std::move(copy), std::move(held));
}

void LimitedMemory::read(const void* from, size_t bytes, const std::function<void(const void*)>& visit) {
  if (device()->uses_host_memory()) return visit(from);
  const auto copy = bytes <= kFewBytes ? few_bytes() : device()->allocate_staging(bytes, "the host's copy of a tensor");
  queues_.compute().copy(copy.get(), from, bytes, device::Direction::to_host);
  queues_.finish();
  visit(copy.get());
}

std::shared_ptr<std::byte[]> LimitedMemory::few_bytes() {
  if (!few_bytes_) few_bytes_ = device()->allocate_staging(kFewBytes, "the host's copies of numbers");
  return few_bytes_;
}

void LimitedMemory::write(void* to, size_t bytes, const std::function<void(void*)>& fill) {
  if (device()->uses_host_memory()) return fill(to);
  const auto copy = device()->allocate_staging(bytes, "the host's copy of a tensor");
  fill(copy.get());
  queues_.compute().copy(to, copy.get(), bytes, device::Direction::to_device);
  queues_.finish();
}

std::unique_ptr<RankMemory> PlannedMemory::another(Communicators&, Queues&) const {
  return std::make_unique<PlannedMemory>(device(), limit_);
}

Tensor PlannedMemory::on_host(DType dtype, Dims dims, std::string_view) {
  const size_t bytes = bytes_of(dtype, count_of(dims));
  return {dtype, std::move(dims), nullptr, nullptr, bytes};
}

Tensor PlannedMemory::on_host(DType dtype, Dims dims, std::string_view what, const std::function<void(void*)>& fill) {
  if (bytes_of(dtype, count_of(dims)) > bind::kMostKnown) return on_host(dtype, std::move(dims), what);
  Tensor tensor = Tensor::uninitialized(dtype, std::move(dims));
  fill(tensor.mutable_data());
  return tensor;
}

}  // namespace tessera::runtime
