#pragma once

#include <exception>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::runtime {

/// Data that must be the same on all members of a group.
struct Given {
  std::string what;    ///< "inputs"; also the stage of the error. Members with another `what` have other data
  std::string words;   ///< "batch=2, sequence=16"
  bool joins = false;  ///< members arrive at their own pace, before they run
};

/// Tells all members of one rank's error, so that none waits for the rank that failed; the world stays usable. Every
/// member calls this after a step that may fail on some members only, with its own error or null. Returns `own`; else
/// the error of the first member that has one (of the same kind, with a message of at most 500 bytes); else null.
///
/// If members have different data, and no other error, returns a user error that names two of them and the first 500
/// bytes of their words, which should differ.
std::exception_ptr agree(comm::Communicator& everyone, std::exception_ptr own, const Given& given);

}  // namespace tessera::runtime
