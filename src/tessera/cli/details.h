#pragma once

#include "tessera/cli/console.h"
#include "tessera/cli/time_options.h"
#include "tessera/cli/trace.h"

namespace tessera::cli {

/// --details: what tessera report draws beyond the usual answer, which it makes many times as long.
struct DetailOptions {
  void declare(CLI::App& app);
  /// Throws a user error where there is no JSON to add them to.
  void check(const Console& console) const;
  /// The members of the answer that hold them: what the rank that needs most holds over time; the layouts of all
  /// tensors, with their reasons; and a trace with the times of operators, `measured` (null: not) and predicted. An
  /// empty object unless they are asked for.
  Json of(const Program& program, const SymbolSizes& sizes, const std::optional<Forecast>& forecast,
          const Trace* measured = nullptr) const;

  bool asked = false;
};

}  // namespace tessera::cli
