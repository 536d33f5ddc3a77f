#pragma once

#include <exception>

#include "tessera/comm/communicator.h"

namespace tessera::runtime {

/// Makes one rank's error everybody's, so that none goes on to wait for the one that failed; the world goes on. Every
/// member calls it after a step that may fail on some only, with its own error or null. Returns `own`, else the error
/// of the first member that has one (of the same kind; a message of more than 500 bytes is cut), else null.
std::exception_ptr agree(comm::Communicator& everyone, std::exception_ptr own);

}  // namespace tessera::runtime
