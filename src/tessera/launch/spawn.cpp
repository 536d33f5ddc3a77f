#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/launch/flight_record.h"
#include "tessera/launch/processes.h"

namespace tessera {
inline namespace v1 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kNotStarted = 127;  // the shells' convention

/// A process and a handle to it, which stays valid even if the process' number is used again.
struct Child {
  pid_t process = -1;
  int handle = -1;
  std::optional<int> status;  // once it has ended
};

class Ranks;

/// The ranks of all current calls. It is never destroyed, since end_spawned() may come from another thread while this
/// process ends.
struct AllRanks {
  std::mutex mutex;  // of each of them, too
  std::vector<Ranks*> calls;
  bool ending = false;  // together with this process
};

AllRanks& all_ranks() {
  static auto* all = new AllRanks;
  return *all;
}

/// The ranks of one call. The destructor ends and forgets them.
class Ranks {
 public:
  Ranks() {
    std::lock_guard lock(all_ranks().mutex);
    all_ranks().calls.push_back(this);
  }
  ~Ranks() {
    {
      std::lock_guard lock(all_ranks().mutex);
      signal_rest(SIGKILL);
    }
    while (!running().empty()) next_ended(std::nullopt);
    std::lock_guard lock(all_ranks().mutex);
    std::erase(all_ranks().calls, this);
    for (const Child& child : ranks_) close(child.handle);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void add(const Child& child) {
    std::lock_guard lock(all_ranks().mutex);
    ranks_.push_back(child);
  }
  /// How a rank has ended.
  std::optional<int> status(size_t rank) const { return ranks_[rank].status; }

  /// Waits until a rank ends, or until the deadline. Returns the ranks that have ended.
  std::vector<size_t> next_ended(std::optional<Clock::time_point> deadline) {
    std::vector<size_t> ended;
    std::vector<pollfd> handles;
    const std::vector<size_t> which = running();
    for (size_t rank : which) handles.push_back({ranks_[rank].handle, POLLIN, 0});
    int wait = -1;
    if (deadline)
      wait = static_cast<int>(
          std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*deadline - Clock::now())).count());
    if (poll(handles.data(), handles.size(), wait) <= 0) return ended;
    std::lock_guard lock(all_ranks().mutex);
    for (size_t i = 0; i < which.size(); ++i) {
      Child& child = ranks_[which[i]];
      int status = 0;
      if (handles[i].revents == 0 || waitpid(child.process, &status, 0) != child.process) continue;
      child.status = status;
      ended.push_back(which[i]);
    }
    return ended;
  }

  /// Sends to those that have not ended; under the lock of all.
  void signal_rest(int signal) {
    for (const Child& child : ranks_)
      if (!child.status) syscall(SYS_pidfd_send_signal, child.handle, signal, nullptr, 0);
  }

  /// Kills stopped ranks (SIGSTOP), which no other signal ends.
  void kill_stopped() {
    std::lock_guard lock(all_ranks().mutex);
    for (const Child& child : ranks_)
      if (!child.status && is_stopped(child.process)) syscall(SYS_pidfd_send_signal, child.handle, SIGKILL, nullptr, 0);
  }

  /// The ranks that have not ended. Called from the call's own thread, the only one that adds ranks and notes their
  /// ends.
  std::vector<size_t> running() const {
    std::vector<size_t> which;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!ranks_[rank].status) which.push_back(rank);
    return which;
  }

  /// Under the lock of all.
  void append_handles(std::vector<pollfd>& handles) const {
    for (const Child& child : ranks_)
      if (!child.status) handles.push_back({child.handle, POLLIN, 0});
  }

 private:
  static bool is_stopped(pid_t process) {
    std::string line;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), line);
    const size_t name_end = line.rfind(')');  // a name may hold anything
    return name_end != std::string::npos && line.compare(name_end, 3, ") T") == 0;
  }

  std::vector<Child> ranks_;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// Starts a rank that has our environment and its own variables, and that ends when this thread does.
Child start(std::vector<std::string> arguments, std::vector<std::string> variables, int memory) {
  for (char** variable = environ; *variable; ++variable) variables.emplace_back(*variable);
  const std::vector<char*> argument_pointers = pointers(arguments), variable_pointers = pointers(variables);
  const pid_t parent = getpid();
  Child child;
  child.process = fork();
  if (child.process < 0) fail_running("spawn", "a rank cannot be started: {}", std::strerror(errno));
  if (child.process == 0) {  // nothing here may allocate: other threads may hold the heap's locks
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kNotStarted);
    fcntl(memory, F_SETFD, 0);  // stays open
    execve("/proc/self/exe", argument_pointers.data(), variable_pointers.data());
    _exit(kNotStarted);
  }
  child.handle = static_cast<int>(syscall(SYS_pidfd_open, child.process, 0));
  if (child.handle < 0) {
    const int error = errno;
    kill(child.process, SIGKILL);
    waitpid(child.process, nullptr, 0);
    fail_running("spawn", "a rank cannot be watched: {}", std::strerror(error));
  }
  return child;
}

bool failed(int status, const std::vector<int>& done) {
  return !WIFEXITED(status) || std::find(done.begin(), done.end(), WEXITSTATUS(status)) == done.end();
}

// The least code of ranks that ended by themselves that is not 0; none: all returned 0.
std::optional<int> least_code(const std::vector<std::optional<int>>& statuses) {
  std::optional<int> least;
  for (const std::optional<int>& status : statuses)
    if (WIFEXITED(*status) && WEXITSTATUS(*status) != 0)
      least = std::min(least.value_or(WEXITSTATUS(*status)), WEXITSTATUS(*status));
  return least;
}

std::string fate_of(size_t rank, int status) {
  if (WIFSIGNALED(status))
    return fmt::format("rank {} died (killed by signal {}, {})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == kNotStarted) return fmt::format("rank {} could not be started", rank);
  return fmt::format("rank {} ended with exit code {}", rank, WEXITSTATUS(status));
}

/// Held while a call uses the ranks' memory: a process can map only one such memory at a time.
template <typename Use>
auto one_at_a_time(Use use) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return use();
}

}  // namespace

Spawned spawn(const SpawnOptions& options) {
  if (options.ranks < 1) fail("spawn", "{} ranks cannot be started; start at least one", options.ranks);
  const Descriptor memory(one_at_a_time([&] { return comm::create_shared_memory(options.ranks); }));
  Ranks ranks;
  for (int rank = 0; rank < options.ranks; ++rank)
    ranks.add(start(options.arguments, launch::spawned_variables(rank, options.ranks, memory.get()), memory.get()));
  std::string first;  // the end of the first rank that failed
  std::optional<Clock::time_point> deadline;
  std::vector<std::optional<int>> statuses(options.ranks);
  for (int left = options.ranks; left > 0;) {
    for (size_t rank : ranks.next_ended(deadline)) {
      statuses[rank] = ranks.status(rank);
      --left;
      if (!failed(*statuses[rank], options.done) || !first.empty()) continue;
      const bool by_mistake =
          WIFEXITED(*statuses[rank]) && WEXITSTATUS(*statuses[rank]) == static_cast<int>(ErrorKind::user);
      one_at_a_time([&] {
        const auto world = comm::make_shared_world(memory.get(), -1);
        const std::string step = comm::step_of(*world->flight(static_cast<int>(rank)));
        first = fate_of(rank, *statuses[rank]) + (step.empty() ? "" : " in " + step);
        world->abort(-1, first, by_mistake ? ErrorKind::user : ErrorKind::running);
      });
      deadline = Clock::now() + options.grace;
      ranks.kill_stopped();
    }
    if (!deadline || Clock::now() <= *deadline) continue;
    std::lock_guard lock(all_ranks().mutex);
    ranks.signal_rest(SIGKILL);
    deadline.reset();
  }
  {
    std::unique_lock lock(all_ranks().mutex);
    const bool ending = all_ranks().ending;
    lock.unlock();
    while (ending) pause();  // the code that ends this process also reports it, so the ranks' messages are not needed
  }
  if (first.empty()) return {least_code(statuses).value_or(0), ""};
  constexpr int kRunning = static_cast<int>(ErrorKind::running);
  const int least = std::min(least_code(statuses).value_or(kRunning), kRunning);
  std::string reason, note;
  one_at_a_time([&] {
    const auto world = comm::make_shared_world(memory.get(), -1);
    reason = world->end().value_or(comm::End{first}).reason;
    if (least == kRunning) note = launch::record_flights(options.flight_record, reason, comm::logs_of(*world));
  });
  const bool silent =
      !WIFEXITED(*statuses[0]) || WEXITSTATUS(*statuses[0]) == 0 || WEXITSTATUS(*statuses[0]) == kNotStarted;
  if (silent) fail_running("spawn", "{}{}", reason, note);
  return {least, note.empty() ? note : note.substr(2)};
}

void end_spawned() {
  constexpr milliseconds kPatience{2000};
  std::vector<pollfd> handles;
  {
    std::lock_guard lock(all_ranks().mutex);
    all_ranks().ending = true;
    for (Ranks* ranks : all_ranks().calls) ranks->signal_rest(SIGTERM), ranks->append_handles(handles);
  }
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (pollfd& handle : handles) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    poll(&handle, 1, static_cast<int>(std::max<int64_t>(left, 0)));
  }
  std::lock_guard lock(all_ranks().mutex);
  for (Ranks* ranks : all_ranks().calls) ranks->signal_rest(SIGKILL);
}

bool signal_spawned(int signal) {
  std::lock_guard lock(all_ranks().mutex);
  for (Ranks* ranks : all_ranks().calls) ranks->signal_rest(signal);
  return !all_ranks().calls.empty();
}

}  // namespace v1
}  // namespace tessera
