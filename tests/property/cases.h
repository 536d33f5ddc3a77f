#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "property/subject.h"

/// The cases that tests try: small graphs, several for each operator, most of one node. An operator of the registry
/// without a case fails the property test.
namespace tessera::property {

/// All of them: the examples in operators' records (OpDef::examples), branches and loops.
std::vector<Subject> all_cases();

using OperatorKey = std::pair<std::string, std::string>;  // domain, type

/// The operator of the case's first node.
OperatorKey key_of(const Subject& subject);
/// For the name of a test: "Relu", "com_microsoft_Inverse".
std::string name_of(const OperatorKey& key);

using CasesByOperator = std::map<OperatorKey, std::vector<Subject>>;
CasesByOperator by_operator(std::vector<Subject> cases);
/// Of all cases.
const CasesByOperator& cases_by_operator();

std::vector<Subject> flow_cases();  // cases_flow.cpp: branches and loops

/// The attribute of the operators that work along one dimension.
inline Attribute axis(int64_t at) {
  return {"axis", at};
}

/// Collects subjects of one node, all of whose results are outputs.
class CaseList {
 public:
  using Make = std::function<std::vector<Value*>(Builder&)>;

  /// `operands` makes the operands; the node's name in messages is "TYPE: what".
  CaseList& add(std::string_view type, std::string_view what, const Make& operands,
                std::vector<Attribute> attributes = {}, Bound bound = kExact, size_t results = 1,
                std::string_view domain = "");
  std::vector<Subject> take() { return std::move(subjects_); }

 private:
  std::vector<Subject> subjects_;
};

}  // namespace tessera::property
