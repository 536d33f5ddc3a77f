#pragma once

#include <string>
#include <string_view>

#include "tessera/cost/machine_model.h"

/// How long kernels take on a machine.
namespace tessera::cost {

/// What the time of a kernel depends on.
struct KernelWork {
  std::string signature;                    ///< operator, attributes and types; equal kernels have equal ones
  DType dtype = DType::float32;             ///< of what it multiplies
  double flops = 0;                         ///< 0: too few to count
  double bytes = 0;                         ///< read and written
  double rows = 0, columns = 0, depth = 0;  ///< of its products; 0: it has none, and memory limits it
};

/// Gives `work` the extents of its products, [rows, depth] by [depth, columns] for each matrix of its first result,
/// which has `count` elements in rows of `columns`: 2 · rows · columns · depth are its FLOPs. Does nothing if those are
/// two or fewer for each of its `elements` (operands and results): then it is as fast as its memory.
void add_extents(KernelWork& work, double elements, double count, double columns);

struct KernelTime {
  double seconds = 0;
  bool measured = false;   ///< this very kernel, on that machine
  bool uncertain = false;  ///< measured, but measurements did not agree
};

/// The measured time of the kernel. If it was not measured: the analytic time, scaled by what was measured for the
/// nearest kernel of the same operator, relative to that kernel's analytic time. Nearness is by the logarithms of FLOPs
/// and bytes; a kernel of another element type counts as if it had e times the FLOPs, and its analytic time is that of
/// its type.
///
/// The analytic time is the roofline's (Williams, Waterman and Patterson 2009) with falling rates for small extents:
/// kernel + max(flops / rate(rows, columns, depth), bytes / bandwidth(bytes)). The machine may give an operator a share
/// of the rate of large products instead.
class KernelTimes {
 public:
  explicit KernelTimes(const MachineModel& machine);

  KernelTime of(const KernelWork& work) const;
  double analytic(const KernelWork& work) const;
  /// Seconds of a copy that reads and writes this many bytes in all.
  double copy(double bytes) const { return bytes > 0 ? bytes / bandwidth(bytes) : 0; }

 private:
  struct Known {
    double flops, bytes, seconds;
    DType dtype;
  };
  double rate(const KernelWork& work) const;
  double bandwidth(double bytes) const;

  const MachineModel& machine_;
  std::map<std::string, std::vector<Known>, std::less<>> by_operator_;
};

/// The operator of a signature: its text up to the first space.
std::string_view operator_of(std::string_view signature);

/// The type of its first operand of floating-point numbers; undefined if it has none. "MatMul  bfloat16[4,8] uint8[64]*
/// -> bfloat16[4,8]" multiplies bfloat16.
DType dtype_of(std::string_view signature);

}  // namespace tessera::cost
