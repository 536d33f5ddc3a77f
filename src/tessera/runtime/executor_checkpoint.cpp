#include <fmt/format.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/checkpoint/save.h"
#include "tessera/checkpoint/shard.h"
#include "tessera/runtime/executor_impl.h"
#include "tessera/runtime/whole_states.h"

/// Checkpoints of the states that change, shard by shard.
namespace tessera::runtime {
namespace {

const SymbolLookup kNoSymbols = [](std::string_view) -> std::optional<int64_t> { return std::nullopt; };

struct SavedShard {
  checkpoint::TensorType tensor;
  Dims at;  // where the elements begin in the tensor that the sharding divides
  Sharding sharding;
  Tensor shard;
};

std::vector<checkpoint::TensorType> types_of(const WholeStates& states) {
  std::vector<checkpoint::TensorType> tensors;
  for (const auto& [name, state] : states) tensors.push_back({name, state.dtype, state.dims});
  return tensors;
}

// A rank's states, each as a region of one of the model's states.
template <typename Visit>
void for_each_shard(const RankPrograms& programs, const WholeStates& wholes, RankState& rank, Visit visit) {
  const auto own = programs.changing_states(rank.rank());
  for (const auto& [name, whole] : wholes)
    for (const WholeState::Piece& piece : whole.pieces) {
      const auto state = own.find(piece.state);
      if (state == own.end()) continue;
      visit(checkpoint::TensorType{name, whole.dtype, whole.dims}, piece.begin, state->second.placement->sharding,
            rank.slot(programs, state->second.value));
    }
}

// Writes one rank's file; returns what went wrong.
std::string write_rank(const std::filesystem::path& folder, const checkpoint::Facts& facts, int rank, const Mesh& mesh,
                       const std::vector<int64_t>& coordinates, const std::vector<SavedShard>& shards) {
  checkpoint::RankFile file(folder, facts.step, rank, facts.run);
  for (const SavedShard& saved : shards)
    checkpoint::add_shard(file, saved.tensor, saved.sharding, mesh, coordinates, kNoSymbols, saved.shard.data,
                          saved.at);
  return file.finish().value_or("");
}

constexpr const char* kStage = "checkpoint";

// The message of an error of this stage; "" if there is none.
std::string words_of(const std::exception_ptr& problem) {
  try {
    if (problem) std::rethrow_exception(problem);
    return "";
  } catch (const Error& error) {
    return error.stage() == kStage ? std::string(error.message()) : error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

std::string Executor::model_of_states() const {
  return checkpoint::fingerprint_of(types_of(whole_states(*impl_->programs)));
}

bool Executor::is_together() const {
  return impl_->team.is_all();
}

Executor::Saving Executor::save_states(const std::filesystem::path& folder, const checkpoint::Facts& facts,
                                       int64_t keep) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  impl_->store->require_whole();
  const std::shared_ptr<const RankPrograms> programs = impl_->programs;
  impl_->team.join(*programs);
  const WholeStates wholes = whole_states(*programs);
  require_whole(wholes);
  auto shards = std::make_shared<std::vector<std::vector<SavedShard>>>(impl_->team.size());
  impl_->on_all([&](size_t n) {
    RankState& rank = impl_->team[n];
    for_each_shard(
        *programs, wholes, rank,
        [&](const checkpoint::TensorType& tensor, const Dims& at, const Sharding& sharding, StateSlot& slot) {
          if (!checkpoint::saves_shard(sharding, programs->mesh(), rank.coordinates())) return;
          const int64_t elements = static_cast<int64_t>(slot.bytes) * 8 / bits_of(tensor.dtype);
          std::shared_ptr<const void> held;
          if (!impl_->options.saves)
            held = impl_->memory.hold(slot.bytes, fmt::format("the copy of '{}' for a checkpoint", tensor.name));
          Tensor copy = device::MemoryLimit::released_with(Tensor::zeros(tensor.dtype, {elements}), std::move(held));
          if (slot.bytes > 0)
            rank.memory().read(slot.current.get(), slot.bytes,
                               [&](const void* part) { std::memcpy(copy.mutable_data(), part, slot.bytes); });
          (*shards)[n].push_back({tensor, at, sharding, std::move(copy)});
        });
  });
  std::vector<std::pair<int, std::vector<int64_t>>> who;
  for (size_t n = 0; n < impl_->team.size(); ++n) who.emplace_back(impl_->team[n].rank(), impl_->team[n].coordinates());
  Saving saving;
  saving.write = [folder, facts, programs, shards, who]() -> std::string {
    std::string problem;
    try {
      for (size_t n = 0; n < who.size() && problem.empty(); ++n) {
        problem = write_rank(folder, facts, who[n].first, programs->mesh(), who[n].second, (*shards)[n]);
        (*shards)[n].clear();
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    shards->clear();
    return problem;
  };
  saving.commit = [folder, facts, keep, is_whole = impl_->team.has_first(), ranks = impl_->team.world().size()] {
    checkpoint::Outcome outcome;
    if (!is_whole) return outcome;
    try {
      outcome = checkpoint::commit(folder, facts, ranks, keep);
      if (outcome.saved && !outcome.problem.empty()) outcome.problem = "it was saved, but " + outcome.problem;
    } catch (const std::exception& error) {
      outcome.problem = error.what();
    }
    return outcome;
  };
  saving.discard = [folder, facts, is_whole = impl_->team.has_first()] {
    if (is_whole) checkpoint::discard(folder, facts.step, facts.run);
  };
  return saving;
}

std::optional<std::string> Executor::common_problem(const std::optional<std::string>& own) {
  if (is_together()) return own;
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->team.join(*impl_->programs);
  std::optional<std::string> common;
  impl_->on_all([&](size_t n) {
    comm::Communicator& everyone = impl_->team[n].communicators().everyone();
    KeptIfThrown<std::vector<int64_t>> under_way;  // to which a library may still write
    *under_way = {own ? 0 : 1};
    everyone.run({.kind = comm::Kind::all_reduce,
                  .dtype = DType::int64,
                  .reduction = Reduction::max,
                  .in = (*under_way).data(),
                  .out = (*under_way).data(),
                  .count = 1,
                  .label = "checkpoint"});
    if ((*under_way).front() > 0) return;
    std::exception_ptr problem;
    if (!own->empty()) problem = std::make_exception_ptr(Error(ErrorKind::running, kStage, *own));
    problem = agree(everyone, problem, {kStage, ""});
    if (n == 0) common = words_of(problem);
  });
  return common;
}

void Executor::load_states(const checkpoint::Checkpoint& saved) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  const RankPrograms& programs = *impl_->programs;
  impl_->team.join(programs);
  const WholeStates wholes = whole_states(programs);
  require_whole(wholes);
  const std::vector<checkpoint::TensorType> tensors = types_of(wholes);
  std::set<std::string> names;
  for (const auto& [name, whole] : wholes)
    for (const WholeState::Piece& piece : whole.pieces) names.insert(piece.state);
  saved.require_model(checkpoint::fingerprint_of(tensors), tensors);
  impl_->on_all([&](size_t n) {
    for_each_shard(programs, wholes, impl_->team[n],
                   [](const auto&, const auto&, const auto&, StateSlot&) {});  // may fail
  });
  impl_->store->note_torn(names);
  impl_->on_all([&](size_t n) {
    RankState& rank = impl_->team[n];
    for_each_shard(
        programs, wholes, rank,
        [&](const checkpoint::TensorType& tensor, const Dims& at, const Sharding& sharding, StateSlot& slot) {
          if (slot.bytes == 0) return;
          rank.memory().write(slot.current.get(), slot.bytes, [&](void* part) {
            checkpoint::read_shard(saved, tensor.name, sharding, programs.mesh(), rank.coordinates(), kNoSymbols, part,
                                   at);
          });
        });
  });
  impl_->store->note_written(names);
}

}  // namespace tessera::runtime
