#include "tessera/device/device.h"

#include <fmt/ranges.h>

#include "tessera/base/bytes_text.h"
#include "tessera/base/error.h"

namespace tessera::device {

const std::vector<std::string>& device_names() {
  static const std::vector<std::string> names{"cpu", "simulated"};
  return names;
}

std::shared_ptr<Device> make_device(std::string_view name) {
  if (name == "cpu") return make_cpu();
  if (name == "simulated") return make_simulated();
  constexpr std::string_view kSized = "simulated:";
  if (name.starts_with(kSized)) {
    if (const auto capacity = parse_bytes(name.substr(kSized.size()))) return make_simulated(capacity);
    fail("device", "'{}' states no size of memory; write bytes, or simulated:512M, or simulated:4G", name);
  }
  fail("device", "there is no device '{}'; the devices are: {}", name, fmt::join(device_names(), ", "));
}

}  // namespace tessera::device
