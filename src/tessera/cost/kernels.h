#pragma once

#include <string>
#include <string_view>

#include "tessera/cost/machine_model.h"

/// How long kernels take on a machine.
namespace tessera::cost {

/// What a kernel does, as far as its time depends on it.
struct KernelWork {
  std::string signature;                    ///< operator, attributes and types: equal for equal kernels
  DType dtype = DType::float32;             ///< of what it multiplies
  double flops = 0;                         ///< 0: none worth counting
  double bytes = 0;                         ///< read and written
  double rows = 0, columns = 0, depth = 0;  ///< of its products; 0: it has none, and is as fast as its memory
};

struct KernelTime {
  double seconds = 0;
  bool measured = false;  ///< on that machine, this very kernel
};

/// The measured time of the kernel. If it was not measured: the analytic time, times the ratio of measured and analytic
/// time of the nearest kernel that was, by the logarithms of FLOPs and bytes, among those of the same operator.
///
/// The analytic time is the roofline's (Williams, Waterman and Patterson 2009) with falling rates for small extents:
/// kernel + max(flops / rate(rows, columns, depth), bytes / bandwidth(bytes)). The machine may give an operator a share of
/// the rate of large products instead.
class KernelTimes {
 public:
  explicit KernelTimes(const MachineModel& machine);

  KernelTime of(const KernelWork& work) const;
  double analytic(const KernelWork& work) const;
  /// Of a copy that reads and writes so many bytes together.
  double copy(double bytes) const { return bytes > 0 ? bytes / bandwidth(bytes) : 0; }

 private:
  struct Known {
    double flops, bytes, seconds;
  };
  double rate(const KernelWork& work) const;
  double bandwidth(double bytes) const;

  const MachineModel& machine_;
  std::map<std::string, std::vector<Known>, std::less<>> by_operator_;
};

/// The operator of a signature: what comes before its first space.
std::string_view operator_of(std::string_view signature);

}  // namespace tessera::cost
