#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/dtype.h"
#include "tessera/mesh/topology.h"

namespace tessera {
inline namespace v1 {

/// How long a machine's kernels, memory and links take: measured (`tessera calibrate`), or described by a few numbers.
/// docs/time.md explains the model and the file.
struct MachineModel {
  /// Matrix products of one element type. A product [rows, depth] x [depth, columns] runs at flops · rows/(rows +
  /// half[0]) · columns/(columns + half[1]) · depth/(depth + half[2]), which is half the rate if one extent equals its
  /// `half` and the others are large.
  struct Product {
    double flops = 0;            ///< per second, of all cores of a rank's device
    double half[3] = {0, 0, 0};  ///< rows, columns, depth
    int64_t multiple = 1;        ///< of elements; products with an extent that is none reach only a share of the rate
    double otherwise = 1;        ///< that share
    bool operator==(const Product&) const = default;
  };
  /// Bytes per second of kernels that read and write at most `up_to` bytes in all.
  struct Bandwidth {
    double up_to = std::numeric_limits<double>::infinity();
    double bytes_per_second = 1;
    bool operator==(const Bandwidth&) const = default;
  };
  /// A level of links: `size` units of the level below (the first level's units are ranks).
  struct Link {
    std::string name;
    int64_t size = 0;      ///< 0: any number
    double alpha = 0;      ///< seconds
    double bandwidth = 1;  ///< bytes per second out of a unit and, at the same time, into it
    bool operator==(const Link&) const = default;
  };
  /// A kernel that was measured.
  struct Kernel {
    double seconds = 0;
    double scatter = 0;           ///< of the measurements: interquartile range over median
    double flops = 0, bytes = 0;  ///< of the kernel
    bool uncertain = false;       ///< measurements did not agree: it is measured again when it is next needed
    bool operator==(const Kernel&) const = default;
  };
  /// Measured seconds of a collective, by bytes.
  struct Collective {
    std::string engine, kind;                       ///< "threads", "all_reduce"
    int64_t members = 1;                            ///< of a group
    int64_t ranks = 1;                              ///< in all groups, which ran it at once
    std::vector<std::pair<double, double>> points;  ///< bytes (as in cost::ring), seconds; ascending
    bool operator==(const Collective&) const = default;
  };
  /// How collectives progress between start and wait.
  enum class Progress : uint8_t {
    background,  ///< by themselves (NCCL, Gloo's threads)
    at_wait,     ///< only while a rank waits, on its own thread (ranks that are threads or share memory)
  };
  /// How many times as long kernels take beside transfers, and transfers beside kernels.
  struct Overlap {
    double slows_computation = 1, slowed_by_computation = 1;
    bool operator==(const Overlap&) const = default;
  };

  std::string name;
  std::string source = "machine";  ///< for messages: the file's path
  std::string device = "cpu";      ///< that programs are bound to: "cpu", or "simulated" for accelerators
  std::string processor;           ///< if the machine was measured
  std::vector<std::string> instruction_sets;
  std::map<std::string, std::string> libraries;  ///< versions, by name
  std::string date;
  int cores = 0;      ///< that the ranks of a machine share; 0: each rank has a device of its own
  double memory = 0;  ///< bytes of a rank's device, or of the machine if ranks share its cores; 0: unknown
  double kernel = 0;  ///< seconds that each kernel adds
  std::map<DType, Product> products;
  std::map<std::string, double> rates;  ///< of other operators with products, as shares of `flops`, by operator
  std::vector<Bandwidth> bandwidths;    ///< ascending; the last one is for any size
  std::vector<Link> links;              ///< the nearest first
  Progress progress = Progress::background;
  Overlap overlap;                          ///< on engines that `overlaps` lacks
  std::map<std::string, Overlap> overlaps;  ///< as measured, by engine: "gloo"
  std::map<std::string, Kernel> kernels;    ///< by operator, attributes and types
  std::vector<Collective> collectives;
  std::map<std::string, std::string> sources;  ///< where numbers come from, as text

  /// Reads a machine file. Throws a user error (stage "machine") that names `source`, the key and the fix.
  static MachineModel from_json(std::string_view text, std::string_view source = "machine");
  std::string to_json() const;

  const Overlap& overlap_on(const std::string& engine) const;

  /// The links of a mesh of such machines. The mesh's last axis is the nearest; an axis that crosses the boundary of a
  /// level is split there. Throws a user error if the mesh has more ranks than the last level joins, or if an axis
  /// cannot be split at a boundary.
  Topology topology(const Mesh& mesh) const;
};

}  // namespace v1
}  // namespace tessera
