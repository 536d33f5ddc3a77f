#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Whole-model passes before sharding: exporters' decompositions become few operators with rules and gradients.
namespace tessera::rewrite {

/// The opset in which the compiler works: `upgrade` converts models to it.
inline constexpr int64_t kCanonicalOpset = 24;

struct RewriteOptions {
  /// Results and states that must survive by name, because an annotation or a user's question names them. Such a value
  /// prevents raising that would remove it. Names that are not in the model are ignored here and reported by the
  /// caller.
  std::set<std::string> barriers;
  /// Names of values that may also be barriers: those that wildcards match, perhaps unintentionally. `is_barrier`
  /// decides about each once its type is known. A candidate that is unused in the end is removed; a barrier stays.
  std::set<std::string> candidates;
  std::function<bool(const Value&)> is_barrier;
  /// Called after each pass with its name and the model, for `--dump=STAGE`.
  std::function<void(std::string_view pass, const OnnxModel&)> observe;
};

struct Pass {
  std::string_view name;
  void (*run)(OnnxModel&);
};

/// All passes, in order.
const std::vector<Pass>& passes();

/// Runs all passes. Afterwards the model is in opset kCanonicalOpset, has no functions, every result has a type, and no
/// Shape node is left. Graph inputs, outputs and states keep their names. Throws user errors that name the node.
void rewrite_model(OnnxModel& model, const RewriteOptions& options = {});
/// A rewritten copy that keeps these names, to examine the outcome; nullopt if rewrite_model() throws a user error,
/// which compiling the model will report.
std::optional<OnnxModel> rewritten_if_possible(const OnnxModel& model, const std::set<std::string>& kept);

}  // namespace tessera::rewrite
