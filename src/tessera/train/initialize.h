#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::train {

/// Pattern of parameters' names, and the rule that fills these.
using InitRules = std::vector<std::pair<std::string, std::string>>;

/// Gives new values to parameters that change; the first pattern that matches applies. A parameter's numbers depend on
/// the seed, its name and each element's index alone (docs/random.md). Rules, N(mean, deviation²) and U[low, high):
///
///   zeros, ones, constant:0.5
///   normal:0.02       N(0, 0.02²); normal:0.02,1 is N(1, 0.02²)
///   uniform:-0.1,0.1  U[-0.1, 0.1)
///   xavier            U[-b, b), b = √(6 / (inputs + outputs))   (Glorot and Bengio, AISTATS 2010, equation 16)
///   kaiming           N(0, 2 / inputs)                          (He et al., ICCV 2015, equation 10)
///
/// In the parameter's first use, `inputs` is the number of terms in the sum of a result element, and `outputs` the
/// number of result elements to which an operand element contributes; they follow from the operator's rule. Types are
/// known. Throws user errors: a pattern that matches nothing, a word that is not a rule, a parameter that is not an
/// operand of a sum. Tables and statistics, those that operators read as given and those in `given`, keep their values.
/// `matches` says whether a pattern means a parameter.
void initialize(Graph& graph, const InitRules& rules, uint64_t seed, const std::set<std::string>& given,
                const std::function<bool(std::string_view pattern, const std::string& parameter)>& matches);

}  // namespace tessera::train
