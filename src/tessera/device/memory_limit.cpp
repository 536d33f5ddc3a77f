#include "tessera/device/memory_limit.h"

#include <algorithm>

#include "tessera/base/bytes_text.h"
#include "tessera/base/error.h"
#include "tessera/ir/pages.h"

namespace tessera::device {
namespace {

std::string text_of(size_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

}  // namespace

MemoryLimit::MemoryLimit(size_t bytes) : bytes_(bytes > 0 ? bytes : machine_memory()) {}

MemoryLimit::MemoryLimit(size_t bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)), mend_("use smaller sizes or more ranks") {}

std::string MemoryLimit::excess(size_t bytes) const {
  const ComparedBytes texts = compared_bytes(bytes, bytes_);
  return fmt::format("{}, which is more than {} of {}", texts.first, name_, texts.second);
}

void MemoryLimit::require(size_t bytes, std::string_view name) const {
  if (bytes > bytes_) fail("memory", "'{}' takes {}; {}", name, excess(bytes), mend_);
}

std::shared_ptr<const void> MemoryLimit::hold(size_t bytes, std::string_view what, size_t beside) {
  if (auto held = hold_if_there_is_room(bytes, beside)) return held;
  fail("memory", "with {} of {} weights, buffers and outputs take {}; {}", what, text_of(bytes),
       excess(held() + beside + bytes), mend_);
}

std::shared_ptr<const void> MemoryLimit::hold_if_there_is_room(size_t bytes, size_t beside) {
  size_t held = this->held();
  do {
    if (beside > bytes_ || bytes > bytes_ - beside || held > bytes_ - beside - bytes) return nullptr;
  } while (!held_->bytes.compare_exchange_weak(held, held + bytes));
  return {held_.get(), [all = held_, bytes](const void*) { all->release(bytes); }};
}

void MemoryLimit::Held::release(size_t released) {
  bytes -= released;
  if (!is_heard) return;
  const std::lock_guard lock(mutex);
  if (listener) listener();
}

void MemoryLimit::Held::listen(std::function<void()> to) {
  const std::lock_guard lock(mutex);
  listener = std::move(to);
  is_heard = listener != nullptr;
}

std::shared_ptr<const void> MemoryLimit::on_release(std::function<void()> listener) {
  held_->listen(std::move(listener));
  return {held_.get(), [all = held_](const void*) { all->listen(nullptr); }};
}

Tensor MemoryLimit::released_with(Tensor tensor, std::shared_ptr<const void> held) {
  const void* memory = tensor.owner.get();
  // The memory goes first, so that the held bytes are never less than the existing memory. Both go with the last copy,
  // also if somebody has a weak pointer, with which this function lives on.
  auto release = [owner = std::move(tensor.owner), held = std::move(held)](const void*) mutable {
    owner.reset();
    held.reset();
  };
  tensor.owner = std::shared_ptr<const void>(memory, std::move(release));
  return tensor;
}

void MemoryLimit::require_plan(size_t planned, const std::function<std::vector<NamedBytes>()>& pieces_of,
                               size_t idle) const {
  const size_t all = this->held(), held = all - std::min(idle, all);
  if (planned <= bytes_ && held <= bytes_ - planned) return;
  constexpr size_t kShown = 5;
  std::vector<NamedBytes> pieces = pieces_of();
  if (held > 0) pieces.push_back({"weights, and outputs that somebody has", held});
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string largest;
  for (size_t i = 0; i < std::min(kShown, pieces.size()); ++i)
    largest += fmt::format("{}{} {}", i == 0 ? "" : ", ", pieces[i].name, text_of(pieces[i].bytes));
  fail("memory", "a run would take {}; the largest of it: {}; {}", excess(planned + held), largest, mend_);
}

}  // namespace tessera::device
