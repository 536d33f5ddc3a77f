#include "mutants/in_child.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace tessera::mutants {
namespace {

constexpr int kDeadlineMs = 120'000;  // a sanitizer's program takes its time to be written

// Outcomes as lines between processes: whether there is one, verdict, mutator, message.
void send(int pipe, const Outcome& outcome, bool done) {
  std::string line =
      (done ? "+" : "-") + std::to_string(static_cast<int>(outcome.verdict)) + "\t" + outcome.mutator + "\t";
  for (char letter : outcome.message) line += letter == '\n' ? ' ' : letter;
  line += "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = write(pipe, line.data() + sent, line.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) _exit(1);  // nobody listens any more
    sent += static_cast<size_t>(count);
  }
}

Outcome outcome_of(const std::string& line) {
  const size_t first = line.find('\t'), second = line.find('\t', first + 1);
  return {static_cast<Verdict>(std::stoi(line.substr(1, first - 1))), line.substr(first + 1, second - first - 1),
          line.substr(second + 1)};
}

class Child {
 public:
  Child(const std::function<uint64_t(uint64_t)>& seed_of, uint64_t from, const std::string& mutator) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      Trials trials;
      auto about_to = [&](const Outcome& outcome) { send(ends[1], outcome, false); };
      for (uint64_t n = from;; ++n) send(ends[1], trials.run(seed_of(n), mutator, about_to), true);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  ~Child() {
    kill(process_, SIGKILL);
    end();
    close(pipe_);
  }

  /// The outcome of the next seed. If the process did not survive to report an outcome, there is no other.
  Outcome next() {
    Outcome now;
    for (;;) {
      const size_t end = read_.find('\n');
      if (end != std::string::npos) {
        const bool done = read_[0] == '+';
        now = outcome_of(read_.substr(0, end));
        read_.erase(0, end + 1);
        if (done) return now;
        continue;
      }
      pollfd waited{pipe_, POLLIN, 0};
      const int ready = poll(&waited, 1, kDeadlineMs);
      if (ready < 0 && errno == EINTR) continue;
      char buffer[4096];
      const ssize_t count = ready > 0 ? read(pipe_, buffer, sizeof buffer) : 0;
      if (count <= 0) {
        alive_ = false;
        return {Verdict::broke, now.mutator, now.message + (ready == 0 ? ": it hangs" : ": it ends the process")};
      }
      read_.append(buffer, static_cast<size_t>(count));
    }
  }
  bool is_alive() const { return alive_; }

 private:
  void end() const {
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t process_ = -1;
  int pipe_ = -1;
  std::string read_;
  bool alive_ = true;
};

}  // namespace

void in_child(const std::function<uint64_t(uint64_t)>& seed_of, const std::string& mutator,
              const std::function<bool(uint64_t seed, const Outcome&)>& took) {
  uint64_t n = 0;
  for (;;) {
    Child child(seed_of, n, mutator);
    for (;;) {
      const Outcome outcome = child.next();
      const uint64_t seed = seed_of(n++);
      if (!took(seed, outcome)) return;
      if (!child.is_alive()) break;
    }
  }
}

}  // namespace tessera::mutants
