#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/join.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::program_io {

/// One model of a program that arrives split.
struct SplitModel {
  std::string name;                  ///< its file's name, for messages
  const OnnxModel* model = nullptr;  ///< as read
  std::vector<uint64_t> files;       ///< files that it was read from (MappedFile::identity)
};

/// The programs that join() of join.h makes from its models.
std::shared_ptr<const runtime::RankPrograms> join_ranks(const std::vector<SplitModel>& models, const Mesh& mesh,
                                                        const JoinOptions& options);

}  // namespace tessera::program_io
