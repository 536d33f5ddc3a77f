#include "tessera/comm/mpi/mpi_fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/hosts.h"

namespace tessera::comm {
namespace {

// Tags on the side communicator.
constexpr int kNotice = 1, kAnnouncement = 2, kDeath = 3;

/// Notices are short, so MPI takes them at once, unless something is broken.
constexpr std::chrono::milliseconds kNoticeTime{100};

/// The number of operations that are usually under way at once, at most.
constexpr size_t kMostSpare = 16;

Notice death_of(int rank) {
  return {rank, death_notice(fmt::format("rank {} has died", rank))};
}

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<size_t>(length));
  fail_running("mpi", "{}: {}", call, text);
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int8:
      return MPI_INT8_T;
    case DType::int16:
      return MPI_INT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::uint16:
      return MPI_UINT16_T;
    case DType::uint32:
      return MPI_UINT32_T;
    case DType::uint64:
      return MPI_UINT64_T;
    default:
      check(false, "a staged reduction has one of the types above");
      return MPI_DATATYPE_NULL;
  }
}

MPI_Datatype mpi_type_of_bytes(size_t element_bytes) {
  switch (element_bytes) {
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    case 16:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      check(element_bytes == 1, "elements have 1, 2, 4, 8 or 16 bytes");
      return MPI_BYTE;
  }
}

int mpi_count(int64_t count, const Operation& operation) {
  if (count > std::numeric_limits<int>::max())
    fail("mpi", "{}: {} elements in one operation; MPI counts to 2147483647: split the tensor over more ranks",
         describe(operation), count);
  return static_cast<int>(count);
}

MpiFabric::MpiFabric(MPI_Comm world, bool spin, int most_direct) : spin_(spin), most_direct_(most_direct) {
  for (MPI_Comm* copy : {&world_, &side_}) {
    check_mpi(MPI_Comm_dup(world, copy), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &size_);
  const auto of_all = [&](int64_t own) {
    std::vector<int64_t> all(static_cast<size_t>(size_));
    check_mpi(MPI_Allgather(&own, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, world_), "MPI_Allgather");
    return all;
  };
  hosts_ = of_all(this_host());
  deaths_.emplace(rank_, hosts_, of_all(getpid()));
}

DirectPlan::Group MpiFabric::group_of(std::span<const int> members) const {
  std::vector<int64_t> hosts;
  for (int member : members) hosts.push_back(hosts_[static_cast<size_t>(member)]);
  return {static_cast<int>(members.size()), most_direct_, DirectPlan::share_links(hosts)};
}

MpiFabric::~MpiFabric() {
  if (abandoned_ || !kept_.empty()) {
    new auto(std::move(kept_));  // nobody receives these any more, but MPI still holds their memory
    return;
  }
  MPI_Comm_free(&side_);
  MPI_Comm_free(&world_);
}

MpiFabric::Scratch MpiFabric::take_scratch(size_t bytes) {
  auto found = std::find_if(spare_.begin(), spare_.end(), [&](const Scratch& spare) { return spare.bytes >= bytes; });
  if (found == spare_.end()) return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  Scratch scratch = std::move(*found);
  spare_.erase(found);
  return scratch;
}

void MpiFabric::give_back(Scratch scratch) {
  spare_.push_back(std::move(scratch));
  auto less = [](const Scratch& a, const Scratch& b) { return a.bytes < b.bytes; };
  if (spare_.size() > kMostSpare) spare_.erase(std::min_element(spare_.begin(), spare_.end(), less));
}

void MpiFabric::flush(std::chrono::milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (sweep()) return;
    }
    if (std::chrono::steady_clock::now() >= deadline) return;
    std::this_thread::yield();
  }
}

void MpiFabric::post(int to, int tag, const std::string& text) {
  Message message = std::make_unique_for_overwrite<std::byte[]>(text.size());
  std::memcpy(message.get(), text.data(), text.size());
  MPI_Request request;
  check_mpi(MPI_Isend(message.get(), static_cast<int>(text.size()), MPI_BYTE, to, tag, side_, &request), "MPI_Isend");
  keep(std::move(message), request);
}

bool MpiFabric::tell(const std::string& text) {
  std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) post(rank, kNotice, text);
  flush(kNoticeTime);
  return true;
}

std::optional<Notice> MpiFabric::next() {
  std::lock_guard lock(mutex_);
  if (notices_.empty()) receive();
  if (notices_.empty()) look_for_deaths();
  if (notices_.empty()) return std::nullopt;
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

std::optional<Notice> MpiFabric::end() {
  std::lock_guard lock(mutex_);
  receive();
  look_for_deaths();
  auto found = std::find_if(notices_.begin(), notices_.end(), [](const Notice& n) { return is_end_notice(n.text); });
  return found == notices_.end() ? std::nullopt : std::optional(*found);
}

void MpiFabric::receive() {
  while (true) {
    int come = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, side_, &come, &status), "MPI_Iprobe");
    if (!come) return;
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    std::string text(static_cast<size_t>(length), '\0');
    check_mpi(MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, side_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    if (status.MPI_TAG == kNotice)
      notices_.push_back({status.MPI_SOURCE, std::move(text)});
    else if (status.MPI_TAG == kDeath)
      notices_.push_back(death_of(std::stoi(text)));
    else
      ++announced_[{std::move(text), status.MPI_SOURCE}];
  }
}

// Ranks of other hosts cannot see it, and hear of it from those that can. What a rank said before it ended counts
// first.
void MpiFabric::look_for_deaths() {
  const std::vector<int> all = deaths_->look();
  if (!all.empty()) receive();
  for (int dead : all) {
    notices_.push_back(death_of(dead));
    const int64_t host = hosts_[static_cast<size_t>(rank_)];
    for (int rank = 0; rank < size_; ++rank)
      if (hosts_[static_cast<size_t>(rank)] != host) post(rank, kDeath, std::to_string(dead));
  }
}

void MpiFabric::announce(const std::string& group, std::span<const int> members) {
  std::lock_guard lock(mutex_);
  for (int member : members)
    if (member != rank_) post(member, kAnnouncement, group);
}

bool MpiFabric::all_announced(const std::string& group, std::span<const int> members) {
  std::lock_guard lock(mutex_);
  receive();
  for (int member : members)
    if (member != rank_ && !announced_.contains({group, member})) return false;
  for (int member : members) {
    auto found = announced_.find({group, member});
    if (found != announced_.end() && --found->second == 0) announced_.erase(found);
  }
  return true;
}

void MpiFabric::keep(Message message, MPI_Request request) {
  kept_.push_back({std::move(message), request});
  sweep();
}

bool MpiFabric::sweep() {
  std::erase_if(kept_, [](Kept& kept) {
    int sent = 0;
    check_mpi(MPI_Test(&kept.request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
    return sent != 0;
  });
  return kept_.empty();
}

}  // namespace tessera::comm
