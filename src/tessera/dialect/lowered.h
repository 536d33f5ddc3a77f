#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/dialect/body.h"
#include "tessera/dialect/numbering.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// The options with which a written model's functions were made from the library's (library.h).
struct FunctionForm {
  bool handles = false;  ///< ranks are handles instead of numbers
  bool tokens = true;    ///< tokens order communication; else the nodes' positions do, and nodes state this
};

/// Compares the functions of models with the library's functions for their stated specifications (function_spec.h).
class FunctionCheck {
 public:
  FunctionCheck(const Mesh& mesh, const FunctionForm& form) : mesh_(mesh), form_(form) {}

  /// Why a function is not known to compute what it states; "" if it does, with the functions that it calls. Example,
  /// for a ring that joins blocks in reverse order: "the function 'AllGather_ring_tp_dim0' is not AllGather (ring) over
  /// tp as it says: Concat producing 'Concat_3' is no step of that".
  std::string flaw_of(const Function& function, const std::vector<Function>& functions);

 private:
  struct Expected {
    std::set<int> steps;
    std::vector<int> given;
  };
  const Expected& expected(const Spec& spec, const std::string& text);

  const Mesh mesh_;
  const FunctionForm form_;
  Numbering numbering_;
  std::map<std::string, Expected> expected_;  // by stated specification
};

/// Whether a function, or one that it calls, communicates, or states a specification of the library's functions.
bool states_or_communicates(const Function& function, const std::vector<Function>& functions);

/// The number of operands before the rank, for a function without a flaw.
size_t operand_count(const Function& function);

/// The collective that a call of a function stands for, with the attributes of both and without operands. Null if the
/// function states no specification, or one that is not a collective.
std::unique_ptr<Node> collective_of(const Node& call, const Function& function);

}  // namespace tessera::dialect
