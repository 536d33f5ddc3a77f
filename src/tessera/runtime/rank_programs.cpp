#include "tessera/runtime/rank_programs.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/spmd/partition/init.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::runtime {

std::shared_ptr<const RankPrograms> RankPrograms::same(std::shared_ptr<const spmd::Program> program,
                                                       std::vector<uint64_t> files) {
  auto all = std::make_shared<RankPrograms>();
  all->files = std::move(files);
  const std::vector<AxisRef> axes = spmd::placed_axes(*program);
  if (axes.empty()) {
    all->programs.push_back(std::move(program));
    return all;
  }
  const Mesh& mesh = program->mesh;
  const auto specialized = spmd::specializer(*program);
  std::map<std::vector<int64_t>, int> known;  // by the indices along those axes
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    const std::vector<int64_t> coordinates = mesh.coordinates(rank);
    std::vector<int64_t> indices;
    for (const AxisRef& axis : axes) indices.push_back(digit_along(axis, mesh, coordinates));
    auto [found, fresh] = known.emplace(std::move(indices), static_cast<int>(all->programs.size()));
    if (fresh) all->programs.push_back(std::make_shared<spmd::Program>(specialized(coordinates)));
    all->program_of.push_back(found->second);
  }
  return all;
}

RankPrograms::Output RankPrograms::output(size_t index) const {
  for (const auto& program : programs)
    if (const Value* value = program->outputs[index].value) return {value, &program->placement(value)};
  check(false, fmt::format("output {} lives on some rank", index));
  return {};
}

namespace {

std::map<std::string, RankPrograms::Output> changing_states_of(const spmd::Program& program) {
  std::map<std::string, RankPrograms::Output> states;
  for (const Value* value : program.graph->values_of(ValueKind::state))
    if (value->changing) {
      const spmd::Placement& placement = program.placement(value);
      states.try_emplace(placement.name, RankPrograms::Output{value, &placement});
    }
  return states;
}

}  // namespace

std::map<std::string, RankPrograms::Output> RankPrograms::changing_states() const {
  std::map<std::string, Output> states;
  for (const auto& program : programs) states.merge(changing_states_of(*program));
  return states;
}

std::map<std::string, RankPrograms::Output> RankPrograms::changing_states(int rank) const {
  return changing_states_of(of(rank));
}

const Tensor* RankPrograms::shard_of(int rank, const std::string& state) const {
  if (shards.empty()) return nullptr;
  const Shards& own = shards[shards_of[rank]];
  auto found = own.find(state);
  check(found != own.end(), fmt::format("rank {} has a shard of '{}'", rank, state));
  return &found->second;
}

std::shared_ptr<const RankPrograms> in_one_graph(const RankPrograms& programs) {
  if (std::none_of(programs.programs.begin(), programs.programs.end(),
                   [](const auto& one) { return one->init != nullptr; }))
    return nullptr;
  auto all = std::make_shared<RankPrograms>(programs);
  for (auto& program : all->programs) program = std::make_shared<spmd::Program>(spmd::in_one_graph(*program));
  return all;
}

}  // namespace tessera::runtime
