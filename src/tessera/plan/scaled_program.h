#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/plan/choice.h"
#include "tessera/plan/planned_model.h"

namespace tessera::plan {

/// The most that a rank of a program holds.
double peak_of(const Program& program);

/// What stands for the program of a plan at any scale: that program, if it is extrapolated from no other, or the
/// programs of few blocks and micro-batches from whose figures its own follow.
class ScaledProgram {
 public:
  /// Compiles what the program at `whole` follows from: smaller ones, if `extrapolates`. Throws user errors as
  /// compile() does.
  ScaledProgram(const PlannedModel& model, const Plan& plan, const Mesh& mesh, const Scale& whole, bool extrapolates);

  const Scale& whole() const { return whole_; }
  /// The largest one that was compiled.
  const Program& program() const { return parts_.back().program; }
  const Scale& largest() const { return parts_.back().scale; }
  bool is_extrapolated() const { return parts_.size() > 1; }
  /// Bytes of the rank with the most, at its peak, in a program of that scale.
  double peak(const Scale& scale) const;
  /// Bytes that a rank receives in the whole program, by axes ("dp", "dp,tp").
  std::map<std::string, double> received() const;
  /// Of all that were compiled, each by itself; for predicted().
  std::vector<Prediction> predictions(const PredictSettings& settings) const;
  /// The program of that scale.
  Prediction predicted(const Scale& scale, const std::vector<Prediction>& parts) const;
  Prediction predicted(const PredictSettings& settings) const { return predicted(whole_, predictions(settings)); }

 private:
  struct Part {
    Scale scale;
    Program program;
  };
  std::vector<Sample> samples(const Scale& scale) const;
  double peak_within_step(int64_t blocks, int micro_batches) const;

  Scale whole_;
  bool extrapolates_;
  std::vector<Part> parts_;
};

}  // namespace tessera::plan
