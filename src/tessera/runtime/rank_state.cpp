#include "tessera/runtime/rank_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/bind/rank.h"
#include "tessera/bind/traits.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ir/pages.h"
#include "tessera/mesh/byte_box.h"
#include "tessera/mesh/group.h"
#include "tessera/runtime/init.h"

namespace tessera::runtime {
namespace {

std::optional<int64_t> no_symbols(std::string_view) {
  return std::nullopt;
}

/// A test of a communication takes a microsecond or more, and small kernels no longer.
constexpr std::chrono::microseconds kBetweenTests{100};

}  // namespace

RankState::RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit* limit, RankStates& states,
                     std::shared_ptr<device::Device> device)
    : mesh_(mesh),
      rank_(rank),
      threads_(threads),
      limit_(limit),
      states_(states),
      coordinates_(mesh.coordinates(rank)),
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

std::shared_ptr<const void> RankState::hold(size_t bytes, std::string_view what) {
  auto held = limit_->hold(bytes, what);
  if (!device_->limit()) return held;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<Both>(std::move(held), device_->limit()->hold(bytes, what));
}

const device::MemoryLimit* RankState::memory_limit() const {
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
  if (!limit_ || device_->uses_host_memory()) return constant->data;
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

const RankState::Part& RankState::part_of(const RankPrograms& programs, const Value* state) {
  if (const auto known = parts_.find(state); known != parts_.end()) return known->second;
  if (programs.of(rank_).derived.contains(state)) {
    name_derived(programs);
    return parts_.at(state);
  }
  Part part{.name = state->name, .type = fmt::format("{} {}", name_of(state->dtype()), to_string(state->shape()))};
  if (const Tensor* cut = programs.shard_of(rank_, state->name)) {
    part.data = cut->data;
  } else {
    const spmd::Program& program = programs.of(rank_);
    part.data = program.initial.at(state).data;
    part.sharding = program.placement(state).sharding.str(mesh_);
  }
  return parts_.emplace(state, std::move(part)).first->second;
}

Dims RankState::shard_dims(const Value* state) const {
  Dims dims;
  for (const Expr& extent : state->shape()) dims.push_back(bind_rank(extent, mesh_, coordinates_).evaluate(no_symbols));
  return dims;
}

// The shard: a view of the whole data where it lies in one piece there, else a copy.
Tensor RankState::cut(const RankPrograms& programs, const Value* state) const {
  if (const Tensor* cut = programs.shard_of(rank_, state->name)) return *cut;
  const spmd::Program& program = programs.of(rank_);
  const Tensor whole = made_whole(program.initial.at(state));
  if (!whole.data && whole.bytes > 0) fail("load", "the data of '{}' is not there", state->name);
  const Sharding& sharding = program.placement(state).sharding;
  if (sharding.is_whole()) return whole;
  const Dims dims = shard_dims(state);
  const auto part = byte_box(box_of(sharding, program.mesh, coordinates_, no_symbols), whole.dtype);
  if (!part)
    fail("load", "'{}' has elements of {} bits and cannot be split within a byte; keep it whole", state->name,
         bits_of(whole.dtype));
  if (part->box.contiguous()) {
    Tensor shard = whole;
    shard.dims = dims;
    shard.bytes = static_cast<size_t>(part->box.count()) * part->unit;
    if (shard.bytes) shard.data = whole.data + static_cast<size_t>(part->box.first()) * part->unit;
    return shard;
  }
  auto held = limit_
                  ? limit_->hold(bytes_of(whole.dtype, count_of(dims)), fmt::format("the shard of '{}'", state->name))
                  : nullptr;
  Tensor shard = Tensor::zeros(whole.dtype, dims);
  copy_from_whole(shard.mutable_data(), whole.data, *part);
  return device::MemoryLimit::released_with(std::move(shard), std::move(held));
}

const Tensor& RankState::shard(const RankPrograms& programs, const Value* state) {
  if (!limit_ || device_->uses_host_memory()) return host_shard(programs, state);
  const Part& part = part_of(programs, state);
  if (auto known = resident_.find(part); known != resident_.end()) return known->second;
  const bool only_for_this = !shards_.contains(part);
  const Tensor plain = host_shard(programs, state);
  Tensor copy = resident(plain, state->name);
  if (only_for_this) shards_.erase(part);
  return resident_.emplace(part, std::move(copy)).first->second;
}

const Tensor& RankState::host_shard(const RankPrograms& programs, const Value* state) {
  const Part& part = part_of(programs, state);
  auto known = shards_.find(part);
  if (known != shards_.end()) return known->second;
  if (programs.of(rank_).derived.contains(state)) return shards_.emplace(part, made(programs, state)).first->second;
  Tensor shard = cut(programs, state);
  const bool comes_cut = programs.shard_of(rank_, state->name) != nullptr;
  if (limit_ || comes_cut || shard.bytes <= bind::kMostKnown)
    shard = programs.aligned_once(std::move(shard), state->name, limit_);
  return shards_.emplace(part, std::move(shard)).first->second;
}

void RankState::copy_initial(const RankPrograms& programs, const Value* state, void* to) const {
  const spmd::Program& program = programs.of(rank_);
  const Sharding& sharding = program.placement(state).sharding;
  const Tensor* given = programs.shard_of(rank_, state->name);
  if (const ElementMaker* maker = given ? nullptr : maker_of(program.initial.at(state))) {
    // Each rank makes its own elements only.
    auto* next = static_cast<std::byte*>(to);
    for_each_piece(box_of(sharding, program.mesh, coordinates_, no_symbols), 1, [&](const Box& run) {
      maker->make(run.first(), run.count(), next);
      next += bytes_of(state->dtype(), run.count());
    });
    return;
  }
  if (given || sharding.is_whole()) {
    const Tensor initial = given ? *given : cut(programs, state);
    std::memcpy(to, initial.data, initial.bytes);
    return;
  }
  const Tensor& whole = program.initial.at(state);
  const auto part = byte_box(box_of(sharding, program.mesh, coordinates_, no_symbols), whole.dtype);
  if (!whole.data || !part) (void)cut(programs, state);  // refuses it
  copy_from_whole(to, whole.data, *part);
}

StateSlot& RankState::slot(const RankPrograms& programs, const Value* state) {
  const spmd::Placement& placement = programs.of(rank_).placement(state);
  const Sharding& sharding = placement.sharding;
  StateSlot slot{.name = placement.name,
                 .layout = sharding.is_whole() ? "whole" : sharding.str(mesh_),
                 .dtype = state->dtype(),
                 .dims = shard_dims(state)};
  if (StateSlot* known = states_.find(slot.name)) {
    if (known->dtype != slot.dtype || known->dims != slot.dims || known->layout != slot.layout)
      fail("state",
           "the programs that share the state '{}' store it in different ways: {} {} and {} {}; store it alike in "
           "both (--store)",
           slot.name, name_of(known->dtype), known->layout, name_of(slot.dtype), slot.layout);
    return *known;
  }
  slot.bytes = bytes_of(slot.dtype, count_of(slot.dims));
  if (limit_) {
    slot.held.push_back(hold(slot.bytes, fmt::format("the state '{}'", slot.name)));
    slot.current = memory(slot.bytes, "a state");
    if (slot.bytes > 0) write(slot.current.get(), slot.bytes, [&](void* to) { copy_initial(programs, state, to); });
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

const Tensor& RankState::packed(const RankPrograms& programs, const Value* state, const std::string& key,
                                const Node& pack, size_t bytes, const std::vector<const Value*>& spared) {
  const Part& part = part_of(programs, state);
  auto known = packed_.find({part, key});
  if (known != packed_.end()) return known->second;
  Tensor result{DType::uint8, {static_cast<int64_t>(bytes)}, nullptr, nullptr, bytes};
  const bool only_for_this = !shards_.contains(part) && !resident_.contains(part);
  const auto let_go_of_plain = [&, derived = programs.of(rank_).derived.contains(state)] {
    if (!only_for_this) return;
    if (derived) note_load_peak();
    resident_.erase(part);
    auto plain = shards_.extract(part);
    if (!derived) return;
    if (plain) made_.insert(std::move(plain));
    if (state->uses.size() == 1) made_.erase(part);
  };
  if (!limit_) {
    const Tensor& sized = packed_.emplace(std::pair{part, key}, std::move(result)).first->second;
    let_go_of_plain();
    return sized;
  }
  std::vector<Tensor> plain = {shard(programs, state)};
  if (const auto* dims = pack.get<std::vector<int64_t>>("shape")) {
    Tensor& whole = plain.front();
    whole.data += bytes_of(whole.dtype, pack.get_int("begin", 0));
    whole.dims = *dims;
    whole.bytes = bytes_of(whole.dtype, count_of(whole.dims));
  }
  std::vector<Part> spared_parts;
  for (const Value* value : spared) {
    if (value->kind != ValueKind::state || value->uses.size() != 1 || programs.of(rank_).derived.contains(value))
      continue;
    const Part& own = part_of(programs, value);
    if (!shards_.contains(own) && !resident_.contains(own)) spared_parts.push_back(own);
  }
  for (size_t i = 1; i < pack.operand_count(); ++i) {
    const Value* beside = pack.inputs[i];
    plain.push_back(!beside                               ? Tensor()
                    : beside->kind == ValueKind::constant ? constant(beside)
                                                          : shard(programs, beside));
  }
  auto held = hold(bytes, fmt::format("the packed form of '{}'", state->name));
  const device::HostMemory pages = [](size_t size, const char* what) {
    return std::shared_ptr<std::byte[]>(allocate_pages(size, what));
  };
  const device::Memory packed = device_->allocate(bytes, "a packed weight", pages);
  result.owner = packed;
  result.data = packed.get();
  const kernels::KernelEntry* entry = device_->kernels().find(pack.op_type, pack.domain);
  check(entry != nullptr, "there is a kernel that packs");
  kernels::PrepareContext context{.node = pack,
                                  .inputs = {},
                                  .outputs = {{result.dtype, result.dims}},
                                  .known = std::vector<const void*>(plain.size(), nullptr),
                                  .threads = threads_};
  std::vector<const void*> in;
  for (const Tensor& operand : plain) {
    context.inputs.push_back({operand.dtype, operand.dims});
    in.push_back(operand.data);
  }
  auto kernel = device_->kernels().prepare(*entry, context);
  const size_t scratch_bytes = kernel->scratch_bytes();
  const auto meanwhile = hold(scratch_bytes, fmt::format("the scratch memory in which '{}' is packed", state->name));
  const device::Memory scratch = device_->allocate(scratch_bytes, "scratch memory", pages);
  void* out = packed.get();
  queue(bind::QueueKind::compute)
      .run([&](const kernels::KernelArgs& args) { kernel->run(args); }, {in, std::span(&out, 1), scratch.get()});
  finish();
  result = device::MemoryLimit::released_with(std::move(result), std::move(held));
  const Tensor& kept = packed_.emplace(std::pair{part, key}, std::move(result)).first->second;
  let_go_of_plain();
  for (const Part& own : spared_parts) {
    resident_.erase(own);
    shards_.erase(own);
  }
  return kept;
}

void RankState::name_derived(const RankPrograms& programs) {
  const spmd::Program& program = programs.of(rank_);
  const auto numbers = derivations(program, [&](const Value* state) {
    const Part& part = part_of(programs, state);
    Hash hash;
    for (const std::string* text : {&part.name, &part.type, &part.sharding}) hash.add(*text);
    hash.add(reinterpret_cast<uint64_t>(part.data));
    return hash.value();
  });
  for (const auto& [state, number] : numbers)
    parts_.emplace(state, Part{.name = state->name, .sharding = fmt::format("made by {:016x}", number)});
}

std::shared_ptr<const void> RankState::initialize(const RankPrograms& programs) {
  std::vector<const Value*> missing;
  for (const auto& [state, made] : programs.of(rank_).derived)
    if (!initialized_.contains(part_of(programs, state))) missing.push_back(state);
  make(programs, missing);
  return {static_cast<const void*>(this), [this](const void*) { made_.clear(); }};
}

void RankState::make(const RankPrograms& programs, const std::vector<const Value*>& derived) {
  if (derived.empty()) return;
  std::set<std::string> names;
  for (const Value* state : derived) names.insert(state->name);
  InitResults results = run_init(programs, rank_, threads_, limit_, world_, device_, names);
  load_peak_ = std::max(load_peak_, results.peak_bytes + state_bytes());
  for (const Value* state : derived) {
    initialized_.insert(part_of(programs, state));
    made_[part_of(programs, state)] = std::move(results.values.at(state->name));
  }
}

// What init made of it, which goes to who asks.
Tensor RankState::made(const RankPrograms& programs, const Value* derived) {
  if (!made_.contains(part_of(programs, derived))) make(programs, {derived});
  return std::move(made_.extract(part_of(programs, derived)).mapped());
}

void RankState::note_load_peak() {
  size_t bytes = state_bytes();
  for (const auto& [part, tensor] : made_) bytes += tensor.bytes;
  load_peak_ = std::max(load_peak_, bytes);
}

void RankState::forget(const RankPrograms& programs) {
  for (const auto& program : programs.programs)
    for (const auto& value : program->graph->values()) parts_.erase(value.get()), constants_.erase(value.get());
  std::set<Part> used;
  for (const auto& [state, part] : parts_) used.insert(part);
  std::erase_if(shards_, [&](const auto& entry) { return !used.contains(entry.first); });
  std::erase_if(resident_, [&](const auto& entry) { return !used.contains(entry.first); });
  std::erase_if(packed_, [&](const auto& entry) { return !used.contains(entry.first.first); });
  std::erase_if(initialized_, [&](const Part& part) { return !used.contains(part); });
  kernels_.drop_unused();
}

void RankState::forget_values() {
  parts_.clear();
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
  keep_for_good(shards_);
  keep_for_good(resident_);
  states_.abandon_memory();
}

size_t RankState::state_bytes() const {
  size_t sum = 0;
  for (const auto* tensors : {&shards_, &resident_})
    for (const auto& [state, tensor] : *tensors) sum += tensor.bytes;
  for (const auto& [constant, tensor] : constants_) sum += tensor.bytes;
  for (const auto& [key, tensor] : packed_) sum += tensor.bytes;
  return sum + states_.bytes();
}

}  // namespace tessera::runtime
