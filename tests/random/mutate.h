#pragma once

#include <optional>
#include <random>
#include <string>

#include "tessera/runtime/rank_programs.h"

/// Right programs made wrong, as a bad edit or a bug in a tool would.
namespace tessera::random {

/// One program a rank, so that ranks can be changed one by one.
runtime::RankPrograms apart(const runtime::RankPrograms& programs);

/// Changes one communication node at random, on one rank or on all: drops it, lets it change places with another,
/// retypes it (another reduction, kind, dimension or peer), moves it, or gives it another group. Says what it did;
/// nullopt if the program communicates too little for what was drawn.
std::optional<std::string> mutate(runtime::RankPrograms& programs, std::mt19937_64& random);

}  // namespace tessera::random
