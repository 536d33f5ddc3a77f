#include "tessera/runtime/rank_state.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/error.h"

namespace tessera::runtime {

RankState::RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit& limit, RankStates& states,
                     std::shared_ptr<device::Device> device, std::shared_ptr<SharedWeights> shared)
    : mesh_(mesh),
      rank_(rank),
      threads_(threads),
      states_(states),
      coordinates_(mesh.coordinates(rank)),
      initial_(mesh, rank),
      communicators_(mesh, rank, device),
      memory_(std::make_unique<LimitedMemory>(device, limit, shared->room(), communicators_, queues_)),
      weights_(*this, std::move(shared)),
      queues_(*device, threads, communicators_) {}

RankState::RankState(const Mesh& mesh, int rank, int threads, RankStates& states,
                     std::shared_ptr<device::Device> device, const device::MemoryLimit* limit)
    : mesh_(mesh),
      rank_(rank),
      threads_(threads),
      states_(states),
      coordinates_(mesh.coordinates(rank)),
      initial_(mesh, rank),
      communicators_(mesh, rank, device),
      memory_(std::make_unique<PlannedMemory>(device, limit)),
      weights_(*this, std::make_shared<SharedWeights>()),
      queues_(*device, threads, communicators_) {}

RankState::RankState(RankState& other, RankStates& states)
    : mesh_(other.mesh_),
      rank_(other.rank_),
      threads_(other.threads_),
      states_(states),
      coordinates_(other.coordinates_),
      initial_(mesh_, rank_),
      communicators_(mesh_, rank_, other.memory_->device()),
      memory_(other.memory_->another(communicators_, queues_)),
      weights_(*this, other.weights_.shared()),
      queues_(device(), threads_, communicators_) {
  connect(other.communicators_.world());
}

void RankState::plan_for(RankState& other) {
  shared_kernels_ = &other.kernels();
  constants_ = other.constants_;
}

const Tensor& RankState::constant(const Value* constant) {
  if (device().uses_host_memory()) return constant->data;
  auto known = constants_.find(constant);
  if (known == constants_.end())
    known = constants_.emplace(constant, memory_->resident(constant->data, constant->name)).first;
  return known->second;
}

StateSlot& RankState::slot(const RankPrograms& programs, const Value* state) {
  const spmd::Placement& placement = programs.of(rank_).placement(state);
  const Sharding& sharding = placement.sharding;
  StateSlot slot{.name = placement.name,
                 .layout = sharding.is_whole() ? "whole" : sharding.str(mesh_),
                 .dtype = state->dtype(),
                 .dims = initial_.dims_of(state)};
  if (StateSlot* known = states_.find(slot.name)) {
    if (known->dtype != slot.dtype || known->dims != slot.dims || known->layout != slot.layout)
      fail("state",
           "the programs that share the state '{}' store it in different ways: {} {} and {} {}; store it in the same "
           "way in both (`storage`)",
           slot.name, name_of(known->dtype), known->layout, name_of(slot.dtype), slot.layout);
    return *known;
  }
  slot.bytes = bytes_of(slot.dtype, count_of(slot.dims));
  slot.held.push_back(memory_->hold(slot.bytes, fmt::format("the state '{}'", slot.name)));
  slot.current = memory_->allocate(slot.bytes, "a state");
  if (slot.bytes > 0)
    memory_->write(slot.current.get(), slot.bytes, [&](void* to) { initial_.copy(programs, state, to); });
  return states_.add(std::move(slot));
}

void RankState::need_spare(StateSlot& slot) {
  if (slot.has_spare) return;
  slot.held.push_back(memory_->hold(slot.bytes, fmt::format("the next value of the state '{}'", slot.name)));
  slot.spare = memory_->allocate(slot.bytes, "a state's next value");
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
  queues_.reset();
  communicators_.connect(world);
}

void RankState::abandon_memory() {
  memory_->abandon();
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
