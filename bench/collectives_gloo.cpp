// Gloo's times for the collectives of `tessera bench comm`, over TCP and by the same protocol. Start one process per
// rank; they meet in an empty folder:
//   bench_collectives_gloo RANK RANKS FOLDER LEAST MOST [SECONDS]      bytes of the smallest and largest tensor, ×4
//   between
// GLOO_ADDRESS names the address to listen at, 127.0.0.1 if it is not set. Rank 0 prints a line for each kind and size:
// "KIND BYTES MICROSECONDS".
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/comm/batches.h"

namespace {

// Operations that follow each other must not share a tag.
uint32_t next_tag() {
  static uint32_t tag = 0;
  return tag = (tag + 1) % 0x7fff;
}

}  // namespace

int main(int argc, char** argv) {
  const int rank = argc > 5 ? std::atoi(argv[1]) : -1, ranks = argc > 5 ? std::atoi(argv[2]) : 0;
  const long least = argc > 5 ? std::atol(argv[4]) : 0, most = argc > 5 ? std::atol(argv[5]) : 0;
  if (rank < 0 || rank >= ranks || least < 4L * ranks || most < least) {
    std::fprintf(stderr, "usage: bench_collectives_gloo RANK RANKS FOLDER LEAST MOST [SECONDS]\n");
    return 2;
  }
  tessera::comm::TimingOptions options;
  if (argc > 6) options.seconds = std::atof(argv[6]);
  gloo::transport::tcp::attr address;
  address.hostname = std::getenv("GLOO_ADDRESS") ? std::getenv("GLOO_ADDRESS") : "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(argv[3]);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);

  std::vector<float> in(static_cast<size_t>(most) / 4), out = in;
  size_t count = 0, block = 0;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scattered;  // made once for a size, as Gloo has it
  size_t scattered_count = 0;
  const auto sum = [](void* c, const void* a, const void* b, size_t n) { gloo::sum<float>(c, a, b, n); };
  const std::vector<std::pair<const char*, std::function<void()>>> kinds = {
      {"all_reduce",
       [&] {
         gloo::AllreduceOptions call(context);
         call.setInput(in.data(), count);
         call.setOutput(out.data(), count);
         call.setReduceFunction(sum);
         call.setTag(next_tag());
         gloo::allreduce(call);
       }},
      {"all_gather",
       [&] {
         gloo::AllgatherOptions call(context);
         call.setInput(in.data(), block);
         call.setOutput(out.data(), block * static_cast<size_t>(ranks));
         call.setTag(next_tag());
         gloo::allgather(call);
       }},
      {"reduce_scatter",
       [&] {
         if (!scattered || scattered_count != count) {
           scattered.reset();
           scattered = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
               context, std::vector<float*>{out.data()}, static_cast<int>(count),
               std::vector<int>(static_cast<size_t>(ranks), static_cast<int>(block)));
           scattered_count = count;
         }
         scattered->run();
       }},
      {"all_to_all",
       [&] {
         gloo::AlltoallOptions call(context);
         call.setInput(in.data(), block * static_cast<size_t>(ranks));
         call.setOutput(out.data(), block * static_cast<size_t>(ranks));
         call.setTag(next_tag());
         gloo::alltoall(call);
       }},
      {"broadcast",
       [&] {
         gloo::BroadcastOptions call(context);
         call.setOutput(out.data(), count);
         call.setRoot(0);
         call.setTag(next_tag());
         gloo::broadcast(call);
       }},
      {"reduce",
       [&] {
         gloo::ReduceOptions call(context);
         call.setInput(in.data(), count);
         call.setOutput(out.data(), count);
         call.setRoot(0);
         call.setReduceFunction(sum);
         call.setTag(next_tag());
         gloo::reduce(call);
       }},
      {"gather",
       [&] {
         gloo::GatherOptions call(context);
         call.setInput(in.data(), block);
         if (rank == 0) call.setOutput(out.data(), block * static_cast<size_t>(ranks));
         call.setRoot(0);
         call.setTag(next_tag());
         gloo::gather(call);
       }},
      {"scatter",
       [&] {
         gloo::ScatterOptions call(context);
         std::vector<float*> blocks;
         for (int r = 0; r < ranks; ++r) blocks.push_back(in.data() + static_cast<size_t>(r) * block);
         if (rank == 0) call.setInputs(blocks, block);
         call.setOutput(out.data(), block);
         call.setRoot(0);
         call.setTag(next_tag());
         gloo::scatter(call);
       }},
      {"barrier",
       [&] {
         gloo::BarrierOptions call(context);
         call.setTag(next_tag());
         gloo::barrier(call);
       }},
  };
  const auto& meet = kinds.back().second;
  for (const auto& [name, body] : kinds)
    for (long bytes = least; bytes <= most; bytes *= 4) {
      const bool moves = body.target_type() != meet.target_type();
      count = static_cast<size_t>(bytes) / 4;
      block = count / static_cast<size_t>(ranks);
      const tessera::comm::Timing timing = tessera::comm::slowest_median(options, body, meet, [&](double mine) {
        double slowest = mine;
        gloo::AllreduceOptions call(context);
        call.setOutput(&slowest, 1);
        call.setReduceFunction([](void* c, const void* a, const void* b, size_t n) { gloo::max<double>(c, a, b, n); });
        call.setTag(next_tag());
        gloo::allreduce(call);
        return slowest;
      });
      if (rank == 0) std::printf("%s %ld %.3f\n", name, moves ? bytes : 0, timing.seconds * 1e6);
      if (!moves) break;
    }
  return 0;
}
