#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/profile.h"
#include "tessera/time.h"

/// What --overlap report, bench and train say about communication: what computation hides it, what ranks wait for, and
/// why.
namespace tessera::cli {

/// Communications of rank 0 that are alike: of one kind over the same axes, of tensors whose names differ in numbers
/// only. All figures are sums over them, for one step.
struct AlikeCommunications {
  std::string kind;
  std::vector<std::string> axes;
  std::string tensor;  ///< with * in place of the numbers that differ: "h.*.attn.q"
  double count = 0, bytes = 0;
  std::optional<double> predicted_ms;  ///< of the transfers, if nothing disturbs them
  WaitCauses waits;                    ///< predicted
  /// As measured: the wait until the last member had started; the wait from then on; and an upper bound of the time in
  /// which transfers were under way, since a rank that does not wait does not see when a transfer ends.
  std::optional<double> late_peer_ms, exposed_ms, moving_ms;
  std::map<std::string, double> behind;  ///< milliseconds of the operators beside them: "MatMul h.*.mlp.fc"

  /// Predicted, else measured.
  double wait_ms() const;
  /// The part that computation hides: predicted, else an upper bound from what was measured.
  double hidden() const;
};

/// What rank 0 communicates in a step, as predicted and as measured.
class OverlapRows {
 public:
  void predict(const Prediction& prediction);
  /// A run that was measured. All runs together give means.
  void measure(const Profile& profile);
  bool are_measured() const { return runs_ > 0; }
  /// Those that rank 0 waits for longest come first.
  std::vector<AlikeCommunications> sorted() const;

 private:
  struct Rows {
    // Kind, axes, and tensor with * for numbers.
    using Key = std::tuple<std::string, std::vector<std::string>, std::string>;
    std::map<Key, AlikeCommunications> of;
    AlikeCommunications& row(const std::string& kind, const std::vector<std::string>& axes, const std::string& tensor);
  };
  Rows predicted_, measured_;
  double runs_ = 0;
};

struct Forecast;

/// Empty if there is no communication: "rank 0 waits 3.2 ms of 12.3 ms for communication: no work 1.1 ms, order 2.1 ms"
std::string waits_text(const Prediction& prediction);
/// With `all` (--overlap report) a row for each kind of communication, those that rank 0 waits for longest first, and
/// what became of each collective beside products; else the first rows, if there is a forecast. `forecast`: none if no
/// machine is named.
void print_overlap(const Console& console, bool all, const OverlapRows& rows, const ProgramSummary& summary,
                   const std::optional<Forecast>& forecast);
/// {"communications": [...], "waits": {...}, "rings": [...]}
Json overlap_json(const OverlapRows& rows, const ProgramSummary& summary, const std::optional<Forecast>& forecast);

}  // namespace tessera::cli
