#pragma once

#include "tessera/cli/command.h"
#include "tessera/collectives.h"

namespace tessera::cli {

/// tessera bench comm: times collectives over the axes of a mesh, and fits the mesh's links.
class BenchComm {
 public:
  /// As a subcommand of bench.
  void declare(CLI::App& bench);
  /// Whether it is what was asked for.
  bool asked() const { return app_ && app_->parsed(); }
  int run(Console& console);

 private:
  void print(const Console& console, const Mesh& mesh, const CollectiveTimes& found) const;
  void emit(const Console& console, const Mesh& mesh, const CollectiveTimes& found) const;

  CLI::App* app_ = nullptr;
  std::string mesh_, output_;
  MeasureOptions options_;
  double timeout_ = 60;
};

}  // namespace tessera::cli
