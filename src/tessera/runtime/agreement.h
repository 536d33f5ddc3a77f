#pragma once

#include <exception>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::runtime {

/// What all members of a group must have been given alike.
struct Given {
  std::string what;   ///< "inputs", which is also the stage of the error; members that come with another differ in that
  std::string words;  ///< "batch=2, sequence=16"
  bool joins = false;  ///< members come to it at their own pace, before they run
};

/// Makes one rank's error everybody's, so that none goes on to wait for the one that failed; the world goes on. Every
/// member calls it after a step that may fail on some only, with its own error or null. Returns `own`, else the error
/// of the first member that has one (of the same kind; a message of more than 500 bytes is cut), else null.
///
/// Where members have not been given the same, and have no other error, it is a user error that names two of them and
/// what they have: the first 500 bytes of the words, which should tell them apart.
std::exception_ptr agree(comm::Communicator& everyone, std::exception_ptr own, const Given& given);

}  // namespace tessera::runtime
