#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// A search among candidates, which are numbers here.
namespace tessera::plan {

/// Lower bounds on what a candidate needs.
struct Bounds {
  double seconds = 0, bytes = 0;
};

/// What a candidate needs, once it is evaluated.
struct Outcome {
  double seconds = 0;   ///< of a step; 0 if it does not fit
  double bytes = 0;     ///< at the peak
  std::string refused;  ///< why it cannot be evaluated; empty: it can
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// What a candidate needs at least; bounds may rise as others are evaluated.
  virtual Bounds bounds(size_t candidate) = 0;
  /// What a candidate will probably cost, in the unit of the objective; it may change as others are evaluated. The
  /// candidate with the least is evaluated next.
  virtual double expected_cost(size_t candidate) = 0;
  virtual Outcome evaluate(size_t candidate) = 0;
};

enum class Objective : uint8_t { seconds, bytes };

struct SearchLimits {
  Objective objective = Objective::seconds;
  double bytes = 0;                         ///< that a candidate may need; 0: no limit
  std::function<bool()> is_over = nullptr;  ///< asked before each evaluation; true: end with the best so far
  /// Whether there is time left for a candidate's evaluation; candidates without time are left. Null: always.
  std::function<bool(size_t candidate)> has_time = nullptr;
  /// End once the candidate that is expected to cost least costs more than this times the best. 0: do not.
  double promising = 0;
};

struct Searched {
  struct Evaluated {
    size_t candidate = 0;
    Outcome outcome;
  };
  std::vector<Evaluated> fit;      ///< the best first
  std::vector<Evaluated> unfit;    ///< by ascending bytes
  std::vector<Evaluated> refused;  ///< in the order of evaluation
  std::vector<size_t> too_large;   ///< whose least bytes exceed the limit
  std::vector<size_t> too_slow;    ///< whose bounds are not better than the best
  std::vector<size_t> left;        ///< that promised little, or that there was no time for
};

/// Branch and bound over `candidates` numbers from 0: evaluates the candidate of least expected cost first, and drops
/// each that cannot be better than the best one so far. Unless it is ended early, the best is that of an evaluation of
/// all candidates, if bounds hold; of equal ones, any.
///
/// Example: candidates that take 5, 3 and 9 s, with bounds 2, 3 and 4 s. If the second is expected to cost least, the
/// third is never evaluated, since 4 ≥ 3; the first is, since it could take 2 s.
Searched search(size_t candidates, Evaluator& evaluator, const SearchLimits& limits);

/// The begin of a search: all candidates are left.
Searched all_left(size_t candidates);

/// The same among `found.left`, after an earlier search whose outcomes are the others.
void search_on(Searched& found, Evaluator& evaluator, const SearchLimits& limits);

/// Whether one outcome is better than another: by the objective, then by the other figure.
bool is_better(const Outcome& one, const Outcome& other, Objective objective);

}  // namespace tessera::plan
