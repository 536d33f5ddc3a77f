#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tessera/batches.h"
#include "tessera/error.h"

/// What messages of a training run have in common.
namespace tessera::trainer {

[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(ErrorKind::user, "train", message);
}

/// "--held-out" or 'held_out', as the caller calls it.
inline std::string called(SettingName name, std::string_view setting) {
  if (name) return name(setting);
  std::string field(setting);
  std::replace(field.begin(), field.end(), '-', '_');
  return "'" + field + "'";
}

}  // namespace tessera::trainer
