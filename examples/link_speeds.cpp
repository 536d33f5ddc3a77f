// Starts one process per rank of a mesh, and measures how fast they reduce tensors together:
//   link_speeds MESH [LARGEST BYTES]
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "tessera/bounds.h"
#include "tessera/collectives.h"
#include "tessera/launch.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: link_speeds MESH [LARGEST BYTES]\n");
    return 2;
  }
  const auto mesh = tessera::Mesh::parse(argv[1]);
  const std::optional<tessera::Launch> launch = tessera::Launch::find();
  if (!launch) {  // this process was started by a person: it starts itself once more for each rank
    tessera::SpawnOptions ranks;
    ranks.ranks = static_cast<int>(mesh.size());
    ranks.arguments.assign(argv, argv + argc);
    return tessera::spawn(ranks).code;
  }

  tessera::MeasureOptions options;
  options.kinds = {"all_reduce"};
  const tessera::Bounds sizes = tessera::Bounds::between(4, 1e9);
  const std::optional<double> most = sizes.parse(argc > 2 ? argv[2] : "16777216");
  if (!most) {
    std::fprintf(stderr, "the largest tensor has '%s' bytes, but it must be %s\n", argv[2], sizes.text().c_str());
    return 2;
  }
  options.most = static_cast<int64_t>(*most);
  options.connection = tessera::Connection::make(*launch);
  const tessera::CollectiveTimes times = tessera::measure_collectives(mesh, options);
  if (launch->rank != 0) return 0;
  for (const tessera::CollectiveTime& time : times.times)
    if (time.kind == "all_reduce")
      std::printf("%lld ranks, %10lld bytes: %9.1f us, %6.2f GB/s\n", static_cast<long long>(time.members),
                  static_cast<long long>(time.bytes), time.seconds * 1e6, time.bus_bandwidth / 1e9);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
