#pragma once

#include <exception>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::runtime {

/// Makes one rank's error everybody's, so that none goes on to wait for the one that failed; the world goes on. Every
/// member calls it after a step that may fail on some only, with its own error or null. Returns `own`, else the error
/// of the first member that has one (of the same kind; a message of more than 500 bytes is cut), else null.
///
/// `given`: what all members must have been given alike, in words ("batch=2, sequence=16"). Where they have not, and
/// have no other error, it is a user error that names two members and what they have: the first 500 bytes, which
/// should tell them apart.
std::exception_ptr agree(comm::Communicator& everyone, std::exception_ptr own, const std::string& given = "");

}  // namespace tessera::runtime
