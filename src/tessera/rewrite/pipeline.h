#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Whole-model clean-ups before sharding: what exporters spelt out becomes few operators with rules and gradients.
namespace tessera::rewrite {

/// The version of ONNX's own operators that the compiler works in: models come out of `upgrade` in this form.
inline constexpr int64_t kCanonicalOpset = 24;

struct RewriteOptions {
  /// Results and states that must survive by name, because an annotation or a user's question names them. A value that
  /// would vanish into a raised operator blocks that raising. Names that the model does not have are ignored: whoever
  /// named them reports it.
  std::set<std::string> barriers;
  /// Names of values that may be barriers, too: those that wildcards reach, of which whoever wrote them did not think.
  /// `is_barrier` is asked of each once its type is known. One that nothing needs in the end is dropped; a barrier
  /// stays.
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

}  // namespace tessera::rewrite
