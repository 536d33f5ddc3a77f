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
#include <mutex>
#include <optional>

#include "tessera/api/flight_record.h"
#include "tessera/api/processes.h"
#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"

namespace tessera {
inline namespace v1 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kNotStarted = 127;  // as shells have it

/// A process and a handle to it, which stays that process' even when its number is used again.
struct Child {
  pid_t process = -1;
  int handle = -1;
  std::optional<int> status;  // once it has ended
};

/// The ranks that run now; end_spawned() may come from another thread, while this process ends: never destroyed.
struct Children {
  std::mutex mutex;
  std::vector<Child> ranks;
  bool ending = false;  // with this process

  void signal_rest(int signal) {
    for (const Child& child : ranks)
      if (!child.status) syscall(SYS_pidfd_send_signal, child.handle, signal, nullptr, 0);
  }
};

Children& children() {
  static auto* all = new Children;
  return *all;
}

/// The handles of ranks that have not ended, in the order of `which`.
std::vector<pollfd> running(std::vector<size_t>& which) {
  std::lock_guard lock(children().mutex);
  std::vector<pollfd> handles;
  for (size_t rank = 0; rank < children().ranks.size(); ++rank)
    if (!children().ranks[rank].status) {
      handles.push_back({children().ranks[rank].handle, POLLIN, 0});
      which.push_back(rank);
    }
  return handles;
}

/// Waits until a rank ends, or the deadline. The ranks that have ended.
std::vector<size_t> next_ended(std::optional<Clock::time_point> deadline) {
  std::vector<size_t> which, ended;
  std::vector<pollfd> handles = running(which);
  int wait = -1;
  if (deadline)
    wait =
        static_cast<int>(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*deadline - Clock::now())).count());
  if (poll(handles.data(), handles.size(), wait) <= 0) return ended;
  std::lock_guard lock(children().mutex);
  for (size_t i = 0; i < which.size(); ++i) {
    Child& child = children().ranks[which[i]];
    int status = 0;
    if (handles[i].revents == 0 || waitpid(child.process, &status, 0) != child.process) continue;
    child.status = status;
    ended.push_back(which[i]);
  }
  return ended;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// A rank that has our environment and its own variables, and ends when this thread does.
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

bool failed(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

std::string fate_of(size_t rank, int status) {
  if (WIFSIGNALED(status))
    return fmt::format("rank {} died (killed by signal {}, {})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == kNotStarted) return fmt::format("rank {} could not be started", rank);
  return fmt::format("rank {} ended with exit code {}", rank, WEXITSTATUS(status));
}

/// Ends and forgets all ranks.
class Reaper {
 public:
  ~Reaper() {
    {
      std::lock_guard lock(children().mutex);
      children().signal_rest(SIGKILL);
    }
    std::vector<size_t> which;
    while (!running(which).empty()) {
      next_ended(std::nullopt);
      which.clear();
    }
    std::lock_guard lock(children().mutex);
    for (const Child& child : children().ranks) close(child.handle);
    children().ranks.clear();
  }
};

}  // namespace

Spawned spawn(const SpawnOptions& options) {
  if (options.ranks < 1) fail("spawn", "{} ranks cannot be started; start at least one", options.ranks);
  Descriptor memory(comm::create_shared_memory(options.ranks));
  const Reaper reaper;
  for (int rank = 0; rank < options.ranks; ++rank) {
    Child child = start(options.arguments, api::spawned_variables(rank, options.ranks, memory.get()), memory.get());
    std::lock_guard lock(children().mutex);
    children().ranks.push_back(child);
  }
  const std::unique_ptr<comm::World> watched = comm::make_shared_world(memory.get(), -1);
  memory = Descriptor();
  std::string first;  // what became of the first that failed
  std::optional<Clock::time_point> deadline;
  std::vector<std::optional<int>> statuses(options.ranks);
  for (int left = options.ranks; left > 0;) {
    const std::vector<size_t> ended = next_ended(deadline);
    std::lock_guard lock(children().mutex);
    for (size_t rank : ended) {
      statuses[rank] = children().ranks[rank].status;
      --left;
      if (!failed(*statuses[rank]) || !first.empty()) continue;
      first = fate_of(rank, *statuses[rank]);
      if (const std::string step = comm::step_of(*watched->flight(static_cast<int>(rank))); !step.empty())
        first += " in " + step;
      watched->abort(-1, first);
      deadline = Clock::now() + options.grace;
    }
    if (deadline && Clock::now() > *deadline) children().signal_rest(SIGKILL), deadline.reset();
  }
  {
    std::unique_lock lock(children().mutex);
    const bool ending = children().ending;
    lock.unlock();
    while (ending) pause();  // who ends this process also says how; what ranks say of it is no news
  }
  if (first.empty()) return {};
  int least = static_cast<int>(ErrorKind::running);
  for (const std::optional<int>& status : statuses)
    if (WIFEXITED(*status) && WEXITSTATUS(*status) != 0) least = std::min(least, WEXITSTATUS(*status));
  std::string note;
  if (least == static_cast<int>(ErrorKind::running))
    note = api::record_flights(options.flight_record, watched->reason(), comm::logs_of(*watched));
  const bool silent =
      !WIFEXITED(*statuses[0]) || WEXITSTATUS(*statuses[0]) == 0 || WEXITSTATUS(*statuses[0]) == kNotStarted;
  if (silent) {
    const std::string reason = watched->reason();
    fail_running("spawn", "{}{}", reason.empty() ? first : reason, note);
  }
  return {least, note.empty() ? note : note.substr(2)};
}

void end_spawned() {
  constexpr milliseconds kPatience{2000};
  {
    std::lock_guard lock(children().mutex);
    children().ending = true;
    children().signal_rest(SIGTERM);
  }
  std::vector<size_t> which;
  std::vector<pollfd> handles = running(which);
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (pollfd& handle : handles) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    poll(&handle, 1, static_cast<int>(std::max<int64_t>(left, 0)));
  }
  std::lock_guard lock(children().mutex);
  children().signal_rest(SIGKILL);
}

}  // namespace v1
}  // namespace tessera
