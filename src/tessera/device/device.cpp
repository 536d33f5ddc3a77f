#include "tessera/device/device.h"

#include <fmt/ranges.h>

#include <charconv>

#include "tessera/base/bytes_text.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ir/pages.h"

namespace tessera::device {
namespace {

/// What follows "simulated:".
struct SimulatedMachine {
  std::optional<int> devices;  ///< of the machine; nullopt: as many as there are ranks
  size_t capacity = 0;
};

std::optional<SimulatedMachine> parse_simulated(std::string_view text) {
  SimulatedMachine machine;
  if (const size_t x = text.find('x'); x != std::string_view::npos) {
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + x, count);
    if (error != std::errc() || end != text.data() + x || count < 1) return std::nullopt;
    machine.devices = count;
    text.remove_prefix(x + 1);
  }
  const auto capacity = parse_bytes(text);
  if (!capacity) return std::nullopt;
  machine.capacity = *capacity;
  return machine;
}

}  // namespace

std::shared_ptr<std::byte[]> Device::allocate_staging(size_t bytes, const char* what) {
  return allocate_pages(bytes, what);
}

const std::vector<std::string>& device_names() {
  static const std::vector<std::string> names{"cpu", "simulated"};
  return names;
}

std::shared_ptr<Device> make_device(std::string_view name, int local_rank) {
  if (name == "cpu") return make_cpu();
  if (name == "simulated") return make_simulated(local_rank);
  constexpr std::string_view kOf = "simulated:";
  if (!name.starts_with(kOf))
    fail("device", "there is no device '{}'; the devices are: {}", name, fmt::join(device_names(), ", "));
  const auto machine = parse_simulated(name.substr(kOf.size()));
  if (!machine)
    fail(
        "device",
        "'{}' has no valid size of memory; write simulated:BYTES, as simulated:512M, or simulated:2x4G for two devices",
        name);
  if (machine->devices && local_rank >= *machine->devices)
    fail("device",
         "'{}' is a machine with {}, but its rank {} (from 0) needs one of its own; use fewer ranks on a "
         "machine, or more devices",
         name, counted(*machine->devices, "device"), local_rank);
  return make_simulated(local_rank, machine->capacity);
}

}  // namespace tessera::device
