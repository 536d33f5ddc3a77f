#pragma once

namespace tessera::cli {

/// From now on SIGINT and SIGTERM end the process at once, as they do by themselves, but take away what it was writing
/// and the ranks that it has started.
/// To be called before any other thread is started. Signals that are ignored stay so.
void end_cleanly_when_interrupted();

}  // namespace tessera::cli
