#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/mpi/deaths.h"
#include "tessera/comm/remote/direct_plan.h"
#include "tessera/comm/remote/staged.h"
#include "tessera/comm/remote/watch.h"

namespace tessera::comm {

class MpiTransfer;

/// Throws a running error with MPI's message if `code` is not MPI_SUCCESS.
void check_mpi(int code, std::string_view call);

/// MPI's type for `dtype`, one of Staged::dtype(); and for elements of that many bytes that are only moved.
MPI_Datatype mpi_type(DType dtype);
MPI_Datatype mpi_type_of_bytes(size_t element_bytes);

/// `count` as MPI's int. Throws a user error that names the operation if it is larger.
int mpi_count(int64_t count, const Operation& operation);

/// State shared by the communicators of one process. One thread at a time uses MPI, under `mutex`.
class MpiFabric : public Notices {
 public:
  /// Duplicates `world`; collective over it. `spin`: WorldOptions::spin.
  /// `most_direct`: the largest group whose collectives are messages between every two members (DirectPlan).
  MpiFabric(MPI_Comm world, bool spin, int most_direct);
  ~MpiFabric() override;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm world() const { return world_; }
  bool spin() const { return spin_; }
  DirectPlan::Group group_of(std::span<const int> members) const;
  std::recursive_mutex& mutex() { return mutex_; }

  /// Memory for received data before its reduction.
  struct Scratch {
    std::unique_ptr<std::byte[]> memory;
    size_t bytes = 0;
  };
  /// At least `bytes` bytes. Operations reuse the same memory, since touching new pages costs more than the copies into
  /// them. Call both functions under the mutex.
  Scratch take_scratch(size_t bytes);
  void give_back(Scratch scratch);

  /// Operations under way that advance only when they are looked at. Under the mutex.
  std::vector<MpiTransfer*>& unfinished() { return unfinished_; }

  bool tell(const std::string& text) override;
  std::optional<Notice> next() override;
  std::optional<Notice> end() override;

  /// Tells all members that this rank has arrived to create this group.
  void announce(const std::string& group, std::span<const int> members);
  /// Whether all members have announced the group; if so, forgets the announcements.
  bool all_announced(const std::string& group, std::span<const int> members);

  using Message = std::unique_ptr<std::byte[]>;
  /// Keeps a message's copy until MPI has sent it.
  void keep(Message message, MPI_Request request);
  /// Frees the messages that have been sent. True if none is left.
  bool sweep();
  /// Waits at most `most` until all messages are sent.
  void flush(std::chrono::milliseconds most);
  /// After a failed run: leaves everything under way to MPI.
  void abandon() { abandoned_ = true; }

 private:
  struct Kept {
    Message message;
    MPI_Request request;
  };

  void post(int to, int tag, const std::string& text);
  void receive();
  void look_for_deaths();

  const bool spin_;
  const int most_direct_;
  std::recursive_mutex mutex_;
  MPI_Comm world_ = MPI_COMM_NULL;  // for creating groups
  MPI_Comm side_ = MPI_COMM_NULL;   // for notices and announcements
  int rank_ = 0, size_ = 1;
  std::vector<int64_t> hosts_;  // by rank
  std::optional<Deaths> deaths_;
  bool abandoned_ = false;
  std::vector<MpiTransfer*> unfinished_;
  std::vector<Scratch> spare_;
  std::deque<Kept> kept_;
  std::deque<Notice> notices_;
  std::map<std::pair<std::string, int>, int> announced_;  // by group and rank: how often
};

}  // namespace tessera::comm
