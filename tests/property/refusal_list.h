#pragma once

#include <string_view>
#include <vector>

namespace tessera::property {

/// Why a sharding with parts may be refused. A refusal is a user error that contains `message`; any other error is a
/// failure, and so is a refusal where annotations name axes alone.
struct Refusal {
  std::string_view message;
  std::string_view why;
};
const std::vector<Refusal>& refusals();

}  // namespace tessera::property
