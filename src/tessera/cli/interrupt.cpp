#include "tessera/cli/interrupt.h"

#include <csignal>
#include <thread>

#include "tessera/io/atomic_file.h"
#include "tessera/launch.h"

namespace tessera::cli {

// A handler may not remove files; a thread that waits for the signal may.
void end_cleanly_when_interrupted() {
  sigset_t awaited;
  sigemptyset(&awaited);
  bool any = false;
  for (int signal : {SIGINT, SIGTERM}) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    sigaddset(&awaited, signal);
    any = true;
  }
  if (!any) return;
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  std::thread([awaited] {
    int signal = 0;
    if (sigwait(&awaited, &signal) != 0) return;
    end_spawned();
    remove_unfinished();
    pthread_sigmask(SIG_UNBLOCK, &awaited, nullptr);
    raise(signal);
  }).detach();
}

}  // namespace tessera::cli
