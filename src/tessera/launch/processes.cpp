#include "tessera/launch/processes.h"

#include <charconv>
#include <cstdlib>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"

namespace tessera::launch {
namespace {

constexpr const char* kRank = "TESSERA_RANK";
constexpr const char* kSize = "TESSERA_WORLD_SIZE";
constexpr const char* kMemory = "TESSERA_SHARED_MEMORY";

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) fail("launch", "{} is set, but not {}; `spawn` sets both", kRank, variable);
  int number = 0;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0)
    fail("launch", "the variable {} is '{}', which is not a number of 0 or more", variable, text);
  return number;
}

}  // namespace

std::vector<std::string> spawned_variables(int rank, int size, int memory) {
  return {fmt::format("{}={}", kRank, rank), fmt::format("{}={}", kSize, size), fmt::format("{}={}", kMemory, memory)};
}

std::optional<Launch> find_spawned() {
  if (!std::getenv(kRank)) return std::nullopt;
  const int rank = number_in(kRank), size = number_in(kSize), memory = number_in(kMemory);
  return Launch{"processes", rank, size, rank, size, std::to_string(memory)};
}

std::shared_ptr<comm::World> connect_spawned(const Launch& launch, const comm::WorldOptions& options) {
  const Descriptor memory(std::stoi(launch.rendezvous));
  return comm::make_shared_world(memory.get(), launch.rank, options);
}

}  // namespace tessera::launch
