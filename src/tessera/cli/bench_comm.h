#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/command.h"
#include "tessera/cli/launch_options.h"
#include "tessera/collectives.h"

namespace tessera::cli {

/// tessera bench comm: times collectives over the axes of a mesh, and fits the mesh's links.
class BenchComm {
 public:
  /// As a subcommand of bench.
  void declare(CLI::App& bench);
  /// Whether the user gave this subcommand.
  bool asked() const { return app_ && app_->parsed(); }
  int run(Console& console);

 private:
  /// Another library's times for the collectives of all ranks: seconds by collective and bytes.
  struct Peer {
    std::string name;
    std::map<std::pair<std::string, int64_t>, double> seconds;

    /// Reads "NAME=FILE"; a line of the file is "COLLECTIVE BYTES MICROSECONDS". Throws a user error.
    static Peer read(const std::string& text);
    /// Its time for the same collective, if it has one.
    std::optional<double> find(const CollectiveTime& entry, const Mesh& mesh) const;
  };

  void print(const Console& console, const Mesh& mesh, const CollectiveTimes& found,
             const std::vector<Peer>& peers) const;
  void emit(const Console& console, const Mesh& mesh, const CollectiveTimes& found,
            const std::vector<Peer>& peers) const;

  CLI::App* app_ = nullptr;
  std::string mesh_, output_;
  std::vector<std::string> beside_;
  MeasureOptions options_;
  LaunchOptions launch_;
};

}  // namespace tessera::cli
