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

/// How the functions of a written model were made of the library's (library.h).
struct FunctionForm {
  bool handles = false;  ///< of ranks, in the place of numbers
  bool tokens = true;    ///< order communication; else it is in the order of the nodes, which say so
};

/// Holds the functions of models beside those that the library has for what they say that they do (function_spec.h).
class FunctionCheck {
 public:
  FunctionCheck(const Mesh& mesh, const FunctionForm& form) : mesh_(mesh), form_(form) {}

  /// Why a function is not known to compute what it says; "" if it does, those that it calls included. Example: of a
  /// ring whose blocks are put together the other way round "the function 'AllGather_ring_tp_dim0' is not AllGather
  /// (ring) over tp as it says: Concat producing 'Concat_3' is no step of that".
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
  std::map<std::string, Expected> expected_;  // by what functions say
};

/// Whether a function, or one that it calls, communicates, or says that it does what one of the library's does.
bool states_or_communicates(const Function& function, const std::vector<Function>& functions);

/// Operands of a function without a flaw before the rank.
size_t operand_count(const Function& function);

/// The collective that a call of a function stands for, without operands: the attributes of both. Null where the
/// function says nothing, or that it is no collective.
std::unique_ptr<Node> collective_of(const Node& call, const Function& function);

}  // namespace tessera::dialect
