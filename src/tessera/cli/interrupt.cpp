#include "tessera/cli/interrupt.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "tessera/io/atomic_file.h"
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

}  // namespace

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
