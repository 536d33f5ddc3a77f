#include "tessera/runtime/rank_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/bind/rank.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/pages.h"
#include "tessera/mesh/group.h"

namespace tessera::runtime {
namespace {

/// A test of a communication takes a microsecond or more, and small kernels no longer.
constexpr std::chrono::microseconds kBetweenTests{100};

}  // namespace

RankState::RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit* limit, RankStates& states,
                     std::shared_ptr<device::Device> device, std::shared_ptr<WeightStore> store)
    : mesh_(mesh),
      rank_(rank),
      threads_(threads),
      limit_(limit),
      states_(states),
      coordinates_(mesh.coordinates(rank)),
      weights_(*this, store ? std::move(store) : std::make_shared<WeightStore>()),
      device_(std::move(device)) {}

device::Queue& RankState::queue(bind::QueueKind kind) {
  auto& queue = queues_[static_cast<size_t>(kind)];
  const bool computes = kind == bind::QueueKind::compute;  // the flight record follows one queue
  if (!queue) queue = device_->make_queue(threads_, computes ? &flight().step : nullptr);
  return *queue;
}

// A failure of one queue fails the other as soon as it waits for it, so that the computing queue knows first.
void RankState::finish() {
  for (auto& queue : queues_)
    if (queue) queue->finish();
}

void RankState::settle() noexcept {
  for (auto& queue : queues_)
    if (queue) queue->settle();
}

void RankState::read(const void* from, size_t bytes, const std::function<void(const void*)>& visit) {
  if (device_->uses_host_memory()) return visit(from);
  const Pages copy = allocate_pages(bytes, "the host's copy of a tensor");
  queue(bind::QueueKind::compute).copy(copy.get(), from, bytes, device::Direction::to_host);
  finish();
  visit(copy.get());
}

void RankState::write(void* to, size_t bytes, const std::function<void(void*)>& fill) {
  if (device_->uses_host_memory()) return fill(to);
  const Pages copy = allocate_pages(bytes, "the host's copy of a tensor");
  fill(copy.get());
  queue(bind::QueueKind::compute).copy(to, copy.get(), bytes, device::Direction::to_device);
  finish();
}

device::Memory RankState::memory(size_t bytes, const char* what) {
  return device_->allocate(bytes, what, [this](size_t size, const char* name) { return shared_memory(size, name); });
}

std::shared_ptr<const void> RankState::reserve(size_t bytes) {
  check(!reserved_, "a rank packs one weight at a time");
  reserved_.emplace(weights_.store()->room(), bytes);
  return {&reserved_, [](auto* reserved) { reserved->reset(); }};
}

std::shared_ptr<const void> RankState::hold_on_host(size_t bytes, std::string_view what) {
  const auto room = reserved_ ? nullptr : reserve(bytes);
  auto held = limit_->hold(bytes, what);
  reserved_->use(bytes);
  return held;
}

std::shared_ptr<const void> RankState::hold(size_t bytes, std::string_view what) {
  auto held = hold_on_host(bytes, what);
  if (!device_->limit()) return held;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<Both>(std::move(held), device_->limit()->hold(bytes, what));
}

void RankState::size_for(RankState& other) {
  check(!limit_, "nothing runs where memory is sized");
  shared_kernels_ = &other.kernels();
  constants_ = other.constants_;
  refuse_beyond(other.limit_);
}

const device::MemoryLimit* RankState::memory_limit() const {
  if (refused_beyond_) return refused_beyond_;
  const device::MemoryLimit* own = limit_ ? device_->limit() : nullptr;
  return own && own->bytes() < limit_->bytes() ? own : limit_;
}

void RankState::require_room(const bind::MachineProgram& machine,
                             const std::function<std::vector<device::NamedBytes>()>& pieces) const {
  if (const device::MemoryLimit* own = device_->limit())
    own->require_plan(std::max(arena_bytes_, machine.arena_bytes), pieces, arena_room_);
}

Tensor RankState::resident(const Tensor& tensor, std::string_view name) {
  if (!limit_ || device_->uses_host_memory()) return tensor;
  auto held = hold(tensor.bytes, fmt::format("the device's copy of '{}'", name));
  Tensor copy = tensor;
  copy.owner = memory(tensor.bytes, "a tensor");
  copy.data = static_cast<const std::byte*>(copy.owner.get());
  queue(bind::QueueKind::compute)
      .copy(const_cast<std::byte*>(copy.data), tensor.data, tensor.bytes, device::Direction::to_device);
  finish();
  return device::MemoryLimit::released_with(std::move(copy), std::move(held));
}

const Tensor& RankState::constant(const Value* constant) {
  if (device_->uses_host_memory()) return constant->data;
  if (!limit_) {
    constants_.try_emplace(constant, constant->data);
    return constant->data;
  }
  auto known = constants_.find(constant);
  if (known == constants_.end()) known = constants_.emplace(constant, resident(constant->data, constant->name)).first;
  return known->second;
}

void RankState::advance() {
  if (under_way_.empty() || !advances_by_tests()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - advanced_ < kBetweenTests) return;
  advanced_ = now;
  for (bind::Communication* communication : under_way_) communication->advance();
}

StateSlot& RankState::slot(const RankPrograms& programs, const Value* state) {
  const spmd::Placement& placement = programs.of(rank_).placement(state);
  const Sharding& sharding = placement.sharding;
  StateSlot slot{.name = placement.name,
                 .layout = sharding.is_whole() ? "whole" : sharding.str(mesh_),
                 .dtype = state->dtype(),
                 .dims = weights_.dims_of(state)};
  if (StateSlot* known = states_.find(slot.name)) {
    if (known->dtype != slot.dtype || known->dims != slot.dims || known->layout != slot.layout)
      fail("state",
           "the programs that share the state '{}' store it in different ways: {} {} and {} {}; store it in the same "
           "way in both (--store)",
           slot.name, name_of(known->dtype), known->layout, name_of(slot.dtype), slot.layout);
    return *known;
  }
  slot.bytes = bytes_of(slot.dtype, count_of(slot.dims));
  if (limit_) {
    slot.held.push_back(hold(slot.bytes, fmt::format("the state '{}'", slot.name)));
    slot.current = memory(slot.bytes, "a state");
    if (slot.bytes > 0)
      write(slot.current.get(), slot.bytes, [&](void* to) { weights_.copy_initial(programs, state, to); });
  }
  return states_.add(std::move(slot));
}

void RankState::need_spare(StateSlot& slot) {
  if (slot.has_spare) return;
  if (limit_) {
    slot.held.push_back(hold(slot.bytes, fmt::format("the next value of the state '{}'", slot.name)));
    slot.spare = memory(slot.bytes, "a state's next value");
  }
  slot.has_spare = true;
}

void RankState::forget(const RankPrograms& programs) {
  for (const auto& program : programs.programs)
    for (const auto& value : program->graph->values()) constants_.erase(value.get());
  weights_.forget(programs);
  kernels_.drop_unused();
}

void RankState::forget_values() {
  weights_.forget_values();
  constants_.clear();
  kernels_.drop_unused();
}

void RankState::connect(comm::World* world) {
  communicators_.clear();
  everyone_.reset();
  faults_.reset();
  under_way_.clear();
  for (auto& queue : queues_) queue.reset();  // they note what they do in the world
  world_ = world;
  if (world) faults_.emplace(rank_, world->size(), flight());
}

comm::Communicator& RankState::communicator(const std::vector<std::string>& axes) {
  auto& communicator = communicators_[axes];
  if (!communicator)
    communicator = join(group_of(rank_, parse_axes(axes, mesh_), mesh_), fmt::format("{}", fmt::join(axes, ",")),
                        [this](auto host) { return device_->communicator(std::move(host)); });
  return *communicator;
}

comm::Communicator& RankState::everyone() {
  if (!everyone_) {
    std::vector<int> all(static_cast<size_t>(mesh_.size()));
    std::iota(all.begin(), all.end(), 0);
    everyone_ = join(all, "", [](auto host) { return host; });
  }
  return *everyone_;
}

void RankState::join_groups(const RankPrograms& programs) {
  std::set<std::vector<std::string>> groups;
  for (const auto& program : programs.programs)
    for (const auto& node : program->graph->nodes())
      if (const auto* axes = node->get<std::vector<std::string>>("axes"); axes && dialect::kind_of(*node))
        groups.insert(*axes);
  everyone();
  for (const auto& axes : groups) communicator(axes);
}

std::unique_ptr<comm::Communicator> RankState::join(const std::vector<int>& members, const std::string& axes,
                                                    const Made& made) {
  check(world_ != nullptr, "the rank is connected to a world");
  return comm::recorded(made(world_->join(rank_, members)), flight(), axes, members);
}

comm::Flight& RankState::flight() {
  comm::Flight* own = world_ ? world_->flight(rank_) : nullptr;
  check(own != nullptr, "a world keeps the notes of its local ranks");
  return *own;
}

std::shared_ptr<std::byte[]> RankState::shared_memory(size_t bytes, const char* what) {
  check(world_ != nullptr, "the rank is connected to a world");
  return world_->allocate(rank_, bytes, what);
}

std::byte* RankState::arena(size_t bytes) {
  if (bytes > arena_room_) {
    // What has grown once grows again, as the cache of a decoder does: pages that nobody touches are not there.
    const bool grows = arena_room_ > 0 && device_->uses_host_memory();
    const size_t room = grows ? std::max(bytes, arena_room_ + arena_room_ / 8) : bytes;
    arena_.reset();
    arena_held_.reset();
    arena_room_ = arena_bytes_ = 0;
    if (device::MemoryLimit* own = device_->limit()) arena_held_ = own->hold(room, "a rank's arena");
    arena_ = memory(room, "a rank's arena");
    arena_room_ = room;
  }
  arena_bytes_ = std::max(arena_bytes_, bytes);
  return arena_.get();
}

std::byte* RankState::staging(size_t bytes) {
  if (bytes > staging_bytes_) {
    staging_.reset();
    staging_ = allocate_pages(bytes, "the host's copies of inputs and outputs");
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

void RankState::abandon_memory() {
  keep_for_good(std::exchange(arena_, nullptr));
  keep_for_good(std::exchange(arena_held_, nullptr));
  arena_room_ = arena_bytes_ = 0;
  weights_.abandon_memory();
  states_.abandon_memory();
}

size_t RankState::constant_bytes() const {
  size_t sum = 0;
  for (const auto& [constant, tensor] : constants_) sum += tensor.bytes;
  return sum;
}

size_t RankState::state_bytes() const {
  return changing_bytes() + weights_.bytes();
}

}  // namespace tessera::runtime
