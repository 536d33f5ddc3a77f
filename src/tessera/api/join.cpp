#include "tessera/join.h"

#include "tessera/api/impl.h"
#include "tessera/program_io/join_ranks.h"
#include "tessera/program_io/lone_model.h"
#include "tessera/program_io/rank_graph.h"

namespace tessera {
inline namespace v1 {

bool has_collectives(const Model& model) {
  const OnnxModel& read = model.impl().model;
  return program_io::has_collectives(read) || program_io::says_shares(read);
}

Program join(const std::vector<Model>& models, const Mesh& mesh, const JoinOptions& options) {
  std::vector<program_io::SplitModel> split;
  for (const Model& model : models)
    split.push_back({model.path().filename().string(), &model.impl().model, model.impl().files});
  return api::program_of(program_io::join_ranks(split, mesh, options));
}

}  // namespace v1
}  // namespace tessera
