#include "tessera/cli/stop_signal.h"

#include <csignal>

#include "tessera/cli/interrupt.h"
#include "tessera/launch.h"

namespace tessera::cli {

StopSignal::StopSignal(Of whom) {
  take_signals([this, whom](int signal) {
    if ((signal != SIGTERM && signal != SIGUSR1) || (whom == Of::spawned_ranks && !signal_spawned(signal)))
      return false;
    asked_ = true;
    return true;
  });
}

StopSignal::~StopSignal() {
  take_signals(nullptr);
}

}  // namespace tessera::cli
