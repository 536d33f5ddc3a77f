#include "tessera/cost/kernels.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tessera::cost {
namespace {

// A kernel without FLOPs or bytes counts as 1.
double log_of(double amount) {
  return std::log(std::max(amount, 1.0));
}

}  // namespace

std::string_view operator_of(std::string_view signature) {
  return signature.substr(0, signature.find(' '));
}

void add_extents(KernelWork& work, double elements, double count, double columns) {
  if (work.flops <= 2 * elements) return;
  work.columns = std::max(columns, 1.0);
  work.rows = std::max(count, 1.0) / work.columns;
  work.depth = work.flops / (2 * std::max(count, 1.0));
}

DType dtype_of(std::string_view signature) {
  while (!signature.empty()) {
    const std::string_view word = signature.substr(0, signature.find(' '));
    if (word == "->") break;
    const size_t extents = word.find('[');
    if (const DType dtype = dtype_named(word.substr(0, extents)); extents != word.npos && is_float(dtype)) return dtype;
    signature.remove_prefix(std::min(word.size() + 1, signature.size()));
  }
  return DType::undefined;
}

KernelTimes::KernelTimes(const MachineModel& machine) : machine_(machine) {
  for (const auto& [signature, kernel] : machine.kernels)
    by_operator_[std::string(operator_of(signature))].push_back(
        {kernel.flops, kernel.bytes, kernel.seconds, dtype_of(signature)});
}

double KernelTimes::rate(const KernelWork& work) const {
  auto found = machine_.products.find(work.dtype);
  if (found == machine_.products.end()) found = machine_.products.find(DType::float32);
  if (found == machine_.products.end()) return 0;
  const MachineModel::Product& product = found->second;
  double rate = product.flops;
  const std::string_view operators = operator_of(work.signature);  // those that follow in its kernel cost nothing
  const std::string first(operators.substr(0, operators.find('+')));
  if (const auto share = machine_.rates.find(first); share != machine_.rates.end()) return rate * share->second;
  const double extents[] = {work.rows, work.columns, work.depth};
  for (size_t i = 0; i < 3; ++i) rate *= extents[i] / (extents[i] + product.half[i]);
  const auto multiple = static_cast<double>(product.multiple);
  const auto uneven = [&](double extent) { return std::fmod(extent, multiple) != 0; };
  if (std::any_of(std::begin(extents), std::end(extents), uneven)) rate *= product.otherwise;
  return rate;
}

double KernelTimes::bandwidth(double bytes) const {
  for (const MachineModel::Bandwidth& level : machine_.bandwidths)
    if (bytes <= level.up_to) return level.bytes_per_second;
  return machine_.bandwidths.back().bytes_per_second;
}

double KernelTimes::analytic(const KernelWork& work) const {
  const double rate = work.depth > 0 ? this->rate(work) : 0, computing = rate > 0 ? work.flops / rate : 0;
  return machine_.kernel + std::max(computing, work.bytes / bandwidth(work.bytes));
}

KernelTime KernelTimes::of(const KernelWork& work) const {
  if (const auto found = machine_.kernels.find(work.signature); found != machine_.kernels.end())
    return {found->second.seconds, true, found->second.uncertain};
  const double analytic = this->analytic(work);
  const auto known = by_operator_.find(operator_of(work.signature));
  if (known == by_operator_.end()) return {analytic, false};
  const auto distance = [&](const Known& other) {
    const bool is_like = other.dtype == work.dtype || other.dtype == DType::undefined;
    return std::abs(log_of(other.flops) - log_of(work.flops)) + std::abs(log_of(other.bytes) - log_of(work.bytes)) +
           (is_like ? 0 : 1);
  };
  const Known& nearest = *std::min_element(known->second.begin(), known->second.end(),
                                           [&](const Known& a, const Known& b) { return distance(a) < distance(b); });
  KernelWork like = work;
  like.flops = nearest.flops;
  like.bytes = nearest.bytes;
  if (nearest.dtype != DType::undefined) like.dtype = nearest.dtype;
  const double expected = this->analytic(like);
  return {expected > 0 ? analytic * nearest.seconds / expected : analytic, false};
}

}  // namespace tessera::cost
