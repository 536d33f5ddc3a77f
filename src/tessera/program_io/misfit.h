#pragma once

#include "tessera/error.h"
#include "tessera/proof/report.h"

namespace tessera::program_io {

/// Thrown if a program breaks a rule while it is read, so that the rest cannot be read.
class Misfit : public Error {
 public:
  explicit Misfit(proof::Finding found)
      : Error(ErrorKind::user, found.rule, found.message + "; write the program again"), found_(std::move(found)) {}

  const proof::Finding& found() const { return found_; }

 private:
  proof::Finding found_;
};

}  // namespace tessera::program_io
