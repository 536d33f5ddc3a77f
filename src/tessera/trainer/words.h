#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tessera/error.h"

/// What messages of a training run have in common.
namespace tessera::trainer {

[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(ErrorKind::user, "train", message);
}

/// "`held_out`": how messages name a setting.
inline std::string called(std::string_view setting) {
  std::string field(setting);
  std::replace(field.begin(), field.end(), '-', '_');
  return "`" + field + "`";
}
/// "`held_out=0.1`"
inline std::string called(std::string_view setting, const std::string& value) {
  const std::string name = called(setting);
  return name.substr(0, name.size() - 1) + "=" + value + "`";
}

}  // namespace tessera::trainer
