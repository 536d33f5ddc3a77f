#include "tessera/cli/interrupt.h"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>

#include "tessera/cli/command.h"
#include "tessera/files.h"
#include "tessera/launch.h"

namespace tessera::cli {
namespace {

struct LastWords {
  std::mutex mutex;
  std::function<bool(int)> takes;
  std::function<std::string(const std::string&)> words;
  std::function<std::string()> place;
};

// Never destroyed, since a signal may come while the process ends.
LastWords& last_words() {
  static auto* one = new LastWords;
  return *one;
}

void say_last_words(int signal) {
  std::lock_guard lock(last_words().mutex);
  if (!last_words().words) return;
  const std::string text = last_words().words(strsignal(signal));
  if (!text.empty()) std::fprintf(stderr, "tessera: [interrupt] %s\n", text.c_str());
}

std::string place_now() {
  std::lock_guard lock(last_words().mutex);
  return last_words().place ? last_words().place() : "";
}

bool is_stuck() {
  const std::string before = place_now();
  if (before.empty()) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return place_now() == before;
}

bool is_taken(int signal) {
  std::lock_guard lock(last_words().mutex);
  return last_words().takes && last_words().takes(signal);
}

sem_t shrunk;
std::atomic<const char*> shrunk_path = nullptr;

// The thread that touched the page cannot go on. It waits here while another reports, which a handler may not, but not
// for ever: it may hold what the other needs.
void on_bus_error(int, siginfo_t* info, void*) {
  const char *path = mapped_file_at(info->si_addr), *none = nullptr;
  if (!path) {
    std::signal(SIGBUS, SIG_DFL);  // the page is touched again, and the process ends
    return;
  }
  if (shrunk_path.compare_exchange_strong(none, path)) sem_post(&shrunk);
  constexpr timespec kPatience{10, 0};
  nanosleep(&kPatience, nullptr);
  constexpr std::string_view kWords = "tessera: a file became shorter while it was read: ";
  if (write(STDERR_FILENO, kWords.data(), kWords.size()) > 0 && write(STDERR_FILENO, path, std::strlen(path)) > 0)
    (void)!write(STDERR_FILENO, "\n", 1);
  _exit(kFailed);
}

}  // namespace

void fail_when_files_shrink(std::function<void(const std::string& message)> fails) {
  if (sem_init(&shrunk, 0, 0) != 0) return;
  std::thread([fails = std::move(fails)] {
    while (sem_wait(&shrunk) != 0) {  // it was interrupted
    }
    fails("[read] '" + std::string(shrunk_path.load()) +
          "' has become shorter while it was read; give a file that nobody changes meanwhile");
    std::fflush(stdout);
    remove_unfinished();
    std::_Exit(kFailed);
  }).detach();
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void take_signals(std::function<bool(int signal)> takes) {
  std::lock_guard lock(last_words().mutex);
  last_words().takes = std::move(takes);
}

void say_when_interrupted(std::function<std::string(const std::string& signal)> words) {
  std::lock_guard lock(last_words().mutex);
  last_words().words = std::move(words);
}

void say_when_stuck(std::function<std::string()> place) {
  std::lock_guard lock(last_words().mutex);
  last_words().place = std::move(place);
}

// A handler may not remove files; a thread that waits for the signal may.
void end_cleanly_when_interrupted() {
  sigset_t awaited;
  sigemptyset(&awaited);
  bool any = false;
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    sigaddset(&awaited, signal);
    any = true;
  }
  if (!any) return;
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  std::thread([awaited] {
    int signal = 0;
    for (;;) {
      if (sigwait(&awaited, &signal) != 0) return;
      if (!is_taken(signal)) break;
      if (signal == SIGTERM && is_stuck()) say_last_words(signal);
    }
    say_last_words(signal);
    end_spawned();
    remove_unfinished();
    pthread_sigmask(SIG_UNBLOCK, &awaited, nullptr);
    raise(signal);
  }).detach();
}

}  // namespace tessera::cli
