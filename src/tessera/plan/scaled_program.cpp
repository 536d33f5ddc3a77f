#include "tessera/plan/scaled_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/plan/peak_lines.h"

namespace tessera::plan {
namespace {

// The rank that holds the most.
std::pair<int64_t, double> fullest_rank(const Program& program) {
  std::pair<int64_t, double> most(0, 0);
  for (const int64_t rank : program.unlike_ranks())
    if (const auto bytes = static_cast<double>(program.figures(rank).peak_bytes); bytes > most.second)
      most = {rank, bytes};
  return most;
}

HeldMemory held_by(const Program& program, int64_t blocks) {
  const auto [rank, peak] = fullest_rank(program);
  return {static_cast<double>(blocks), program.memory_over_time(rank), peak};
}

// The axes of a collective, without sub-axes: "dp,tp" for "dp,tp:(1)2".
std::string axes_of(const CollectiveSummary& collective) {
  std::string text;
  std::set<std::string> known;
  for (const std::string& axis : collective.axes)
    if (const std::string whole = axis.substr(0, axis.find(':')); known.insert(whole).second)
      text += (text.empty() ? "" : ",") + whole;
  return text;
}

}  // namespace

double peak_of(const Program& program) {
  return fullest_rank(program).second;
}

ScaledProgram::ScaledProgram(const PlannedModel& model, const Plan& plan, const Mesh& mesh, const Scale& whole,
                             bool extrapolates)
    : whole_(whole), extrapolates_(extrapolates) {
  for (const Sample& sample : samples(whole))
    parts_.push_back({sample.scale, model.compiled(plan, mesh, sample.scale)});
}

std::vector<Sample> ScaledProgram::samples(const Scale& scale) const {
  return extrapolates_ ? samples_of(scale, kBlocks, kMicroBatches) : std::vector<Sample>{{scale, 1}};
}

std::map<std::string, double> ScaledProgram::received() const {
  std::map<std::string, double> sum;
  const std::vector<Sample> all = samples(whole_);
  for (size_t i = 0; i < parts_.size(); ++i)
    for (const CollectiveSummary& collective : parts_[i].program.summary().collectives)
      sum[axes_of(collective)] += all[i].weight * static_cast<double>(collective.bytes);
  return sum;
}

std::vector<Prediction> ScaledProgram::predictions(const PredictSettings& settings) const {
  std::vector<Prediction> all;
  for (const Part& part : parts_) all.push_back(predict(part.program, settings));
  return all;
}

Prediction ScaledProgram::predicted(const Scale& scale, const std::vector<Prediction>& parts) const {
  std::vector<std::pair<Prediction, double>> weighted;
  for (const Sample& sample : samples(scale))
    for (size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].scale == sample.scale) weighted.emplace_back(parts[i], sample.weight);
  return sum_of(weighted);
}

// With a number of micro-batches that was compiled.
double ScaledProgram::peak_within_step(int64_t blocks, int micro_batches) const {
  std::vector<const Part*> parts;
  for (const Part& part : parts_)
    if (part.scale.micro_batches == micro_batches) parts.push_back(&part);
  for (const Part* part : parts)
    if (part->scale.blocks == blocks) return peak_of(part->program);
  return peak_with(static_cast<double>(blocks), held_by(parts.front()->program, parts.front()->scale.blocks),
                   held_by(parts.back()->program, parts.back()->scale.blocks));
}

double ScaledProgram::peak(const Scale& scale) const {
  if (!extrapolates_) return peak_of(program());
  double most = 0;  // a step holds no more for further micro-batches of the same size
  for (const Sample& sample : samples_of({0, scale.micro_batches}, kBlocks, kMicroBatches))
    most = std::max(most, peak_within_step(scale.blocks, sample.scale.micro_batches));
  return most;
}

}  // namespace tessera::plan
