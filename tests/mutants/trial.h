#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "io/temporary_folder.h"
#include "mutants/mutators.h"
#include "mutants/subjects.h"

namespace tessera::mutants {

enum class Verdict {
  refused,  ///< as it should be
  equal,    ///< accepted, and it gives the right answer
  escaped,  ///< accepted, and it gives another answer, fails or hangs
  wronged,  ///< a right program, refused
  broke,    ///< check fails in another way than by refusing
  nothing,  ///< there was nothing to edit
};
std::string_view name_of(Verdict verdict);

struct Outcome {
  Verdict verdict = Verdict::nothing;
  std::string mutator;
  std::string message;  ///< what was done, to what; what came of it
};

/// Edits written programs, and does with them what `tessera check --accept` and `tessera run` do. Keeps the program of
/// the last seed: seeds of one program are neighbours.
class Trials {
 public:
  /// Seeds that have a program in common.
  static constexpr uint64_t kAlike = 16;

  /// Edits the program of a seed by the mutator that it draws, or the one of that name. `about_to` is told before
  /// anything is done that might crash.
  Outcome run(
      uint64_t seed, const std::string& mutator = "",
      const std::function<void(const Outcome&)>& about_to = [](const Outcome&) {});

 private:
  struct Written;
  struct Edit;

  bool open(uint64_t k);
  Edit edit(const Mutator& mutator, Random& random, bool may_strip) const;
  Outcome judge(bool right, const Edit& edit);
  std::string difference(const Tensors& answer) const;

  Sources sources_;
  std::shared_ptr<Written> written_;
};

}  // namespace tessera::mutants
