#include "tessera/device/device.h"

#include <fmt/ranges.h>

#include "tessera/base/error.h"

namespace tessera::device {

const std::vector<std::string>& device_names() {
  static const std::vector<std::string> names{"cpu", "simulated"};
  return names;
}

std::shared_ptr<Device> make_device(std::string_view name) {
  if (name == "cpu") return make_cpu();
  if (name == "simulated") return make_simulated();
  fail("device", "there is no device '{}'; the devices are: {}", name, fmt::join(device_names(), ", "));
}

}  // namespace tessera::device
