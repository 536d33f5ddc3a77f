// The schedule of a pipeline as a table that torch.distributed.pipelining reads: schedule_table NAME RANKS
// MICRO_BATCHES
#include <cstdio>
#include <cstdlib>

#include "tessera/error.h"
#include "tessera/pipeline.h"

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: schedule_table NAME RANKS MICRO_BATCHES\n");
    return 2;
  }
  const tessera::PipelineTable table = tessera::make_pipeline(argv[1], {std::atoll(argv[2]), std::atoll(argv[3])});
  tessera::check_pipeline(table);
  std::printf("%s", tessera::pipeline_csv(table).c_str());
  const tessera::PipelineTimes times = tessera::time_pipeline(table, tessera::even_pipeline_costs(table, 1, 1, 1, 0));
  std::fprintf(stderr, "bubble %.1f %%\n", 100 * times.bubble);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
