#pragma once

#include "tessera/error.h"
#include "tessera/proof/report.h"

namespace tessera::program_io {

/// A rule that a program breaks while it is being read; the rest of it cannot be read.
class Misfit : public Error {
 public:
  explicit Misfit(proof::Finding found)
      : Error(ErrorKind::user, found.rule, found.message + "; write the program again"), found_(std::move(found)) {}

  const proof::Finding& found() const { return found_; }

 private:
  proof::Finding found_;
};

}  // namespace tessera::program_io
