#include "tessera/comm/mpi/mpi_transfer.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "tessera/comm/yield.h"

namespace tessera::comm {
namespace {

// Looks before a waiting thread sleeps between them; MPI moves nothing during a sleep. A yielding look takes about a
// microsecond if nobody else wants the core; else the thread sleeps at once.
constexpr int kYields = 200'000;
constexpr int kLooksAtOnce = 32;
/// Looks before the first yield, each a fraction of a microsecond: enough for short operations of ranks that arrive
/// together; more if nobody else wants the cores.
constexpr int kQuickLooks = 16, kQuickLooksOfOwnCore = 500;
constexpr std::chrono::microseconds kNap{100};

/// Looks by a rank that computes meanwhile, per test: each moves a fragment or two of received data.
constexpr int kLooksMeanwhile = 8;

}  // namespace

bool MpiTransfer::all_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

MpiTransfer::~MpiTransfer() {
  if (!listed_) return;
  std::lock_guard lock(fabric_.mutex());
  std::erase(fabric_.unfinished(), this);
}

void MpiTransfer::look_while_others_wait() {
  fabric_.unfinished().push_back(this);
  listed_ = true;
}

void MpiTransfer::look_at_unfinished(MpiFabric& fabric) {
  std::lock_guard lock(fabric.mutex());
  for (MpiTransfer* transfer : fabric.unfinished()) transfer->look();
}

bool MpiTransfer::look_at_all() {
  const bool ended = look();
  if (ended && listed_) {
    std::erase(fabric_.unfinished(), this);
    listed_ = false;
  }
  if (!ended)
    for (MpiTransfer* other : fabric_.unfinished())
      if (other != this) other->look();
  return ended;
}

bool MpiTransfer::test() {
  std::lock_guard lock(fabric_.mutex());
  for (int count = 0; count < kLooksMeanwhile; ++count)
    if (look_at_all()) return true;
  return false;
}

bool MpiTransfer::advance() {
  if (idle_ == 0) {
    std::lock_guard lock(fabric_.mutex());
    const int quick = fabric_.spin() ? kQuickLooksOfOwnCore : kQuickLooks;
    for (; idle_ < quick; ++idle_)
      if (look_at_all()) return true;
  }
  for (int count = 0; count < kLooksAtOnce; ++count, ++idle_) {
    {
      std::lock_guard lock(fabric_.mutex());
      if (look_at_all()) return true;
    }
    if (idle_ >= kYields || !yield_for_a_moment()) std::this_thread::sleep_for(kNap);
  }
  return false;
}

}  // namespace tessera::comm
