#include "tessera/runtime/communicators.h"

#include <fmt/ranges.h>

#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/error_kind.h"
#include "tessera/dialect/schema.h"
#include "tessera/mesh/group.h"

namespace tessera::runtime {
namespace {

/// A test of a communication takes a microsecond or more, as long as a small kernel.
constexpr std::chrono::microseconds kBetweenTests{100};

}  // namespace

Communicators::Communicators(const Mesh& mesh, int rank, std::shared_ptr<device::Device> device)
    : mesh_(mesh), rank_(rank), device_(std::move(device)) {}

void Communicators::connect(comm::World* world) {
  by_axes_.clear();
  everyone_.reset();
  faults_.reset();
  under_way_.clear();
  world_ = world;
  if (world) faults_.emplace(rank_, world->size(), flight());
}

comm::Communicator& Communicators::of(const std::vector<std::string>& axes) {
  if (const auto known = by_axes_.find(axes); known != by_axes_.end()) return *known->second;
  auto communicator = join(group_of(rank_, parse_axes(axes, mesh_), mesh_), fmt::format("{}", fmt::join(axes, ",")),
                           [this](auto host) { return device_->communicator(std::move(host)); });
  return *by_axes_.emplace(axes, std::move(communicator)).first->second;
}

comm::Communicator& Communicators::everyone() {
  if (!everyone_) {
    std::vector<int> all(static_cast<size_t>(mesh_.size()));
    std::iota(all.begin(), all.end(), 0);
    everyone_ = join(all, "", [](auto host) { return host; });
  }
  return *everyone_;
}

void Communicators::join_groups(const RankPrograms& programs) {
  std::set<std::vector<std::string>> groups;
  for (const auto& program : programs.programs)
    for (const auto& node : program->graph->nodes())
      if (dialect::communicates(*node)) groups.insert(spmd::read_collective(*node, mesh_).axes);
  everyone();
  for (const auto& axes : groups) of(axes);
}

std::unique_ptr<comm::Communicator> Communicators::join(const std::vector<int>& members, const std::string& axes,
                                                        const Made& made) {
  check(world_ != nullptr, "the rank is connected to a world");
  return comm::recorded(made(world_->join(rank_, members)), flight(), axes, members, device_->is_asynchronous());
}

void Communicators::require_going_on() const {
  if (const auto end = world_ ? world_->end() : std::nullopt) throw Error(end->kind, "comm", end->reason);
  for (const auto& [axes, communicator] : by_axes_)
    if (const std::exception_ptr failure = communicator->failure()) std::rethrow_exception(failure);
}

void Communicators::end(const std::exception& error) {
  if (!world_) return;
  flight().give_up();
  world_->abort(rank_, error.what(), error_kind(error));
}

void Communicators::abandon() {
  for (const auto& [axes, communicator] : by_axes_) communicator->abandon();
}

comm::Flight& Communicators::flight() {
  comm::Flight* own = world_ ? world_->flight(rank_) : nullptr;
  check(own != nullptr, "a world keeps the notes of its local ranks");
  return *own;
}

std::shared_ptr<std::byte[]> Communicators::shared_memory(size_t bytes, const char* what) {
  check(world_ != nullptr, "the rank is connected to a world");
  return world_->allocate(rank_, bytes, what);
}

void Communicators::advance() {
  if (under_way_.empty() || !advance_by_tests()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - advanced_ < kBetweenTests) return;
  advanced_ = now;
  for (bind::Communication* communication : under_way_) communication->advance();
}

void Communicators::advance_beside(FunctionRef<void()> work) {
  if (under_way_.empty() || !advance_by_tests()) return work();
  progress_.lend();
  try {
    work();
  } catch (...) {
    progress_.take_back();
    throw;
  }
  if (const std::exception_ptr failure = progress_.take_back()) std::rethrow_exception(failure);
}

}  // namespace tessera::runtime
