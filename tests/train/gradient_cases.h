#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "property/subject.h"

namespace tessera::train {

using OperatorKey = std::pair<std::string, std::string>;  // domain, type

/// For the name of a test: "Relu", "com_microsoft_Inverse".
inline std::string name_of(const OperatorKey& key) {
  std::string name = key.first.empty() ? key.second : key.first + "_" + key.second;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

OperatorKey key_of(const property::Subject& subject);

/// One-node graphs: those of the property tests, and more attributes where gradients have cases of their own.
std::vector<property::Subject> gradient_cases();

/// Operators that have one.
std::vector<OperatorKey> with_gradient();

/// Operators whose kernels, or those that their gradients are made of, have no float64.
const std::map<OperatorKey, std::string>& without_float64();

/// Whether a message is of a form of an operator that has no gradient, and says so.
bool is_refused(std::string_view message);

}  // namespace tessera::train
