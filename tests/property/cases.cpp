#include "property/cases.h"

#include <algorithm>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"

namespace tessera::property {
namespace {

Bound bound_of(ops::Rounding rounding) {
  switch (rounding) {
    case ops::Rounding::none:
      return kExact;
    case ops::Rounding::reordered:
      return kReordered;
    case ops::Rounding::normalized:
      return kNormalized;
    case ops::Rounding::attention:
      return kAttention;
    case ops::Rounding::chained:
      return kChain;
    case ops::Rounding::bfloat16:
      return kBFloat16;
  }
  return kExact;
}

// The extents less the sizes of symbols, which are bound: "b=3 2" is "b 2".
std::string bound_extents(Builder& b, std::string_view extents) {
  std::istringstream words{std::string(extents)};
  std::string plain;
  for (std::string word; words >> word;) {
    const size_t sign = word.find('=');
    if (sign != std::string::npos) b.bind(word.substr(0, sign), std::stoll(word.substr(sign + 1)));
    plain += (plain.empty() ? "" : " ") + word.substr(0, sign);
  }
  return plain;
}

Value* operand_of(Builder& b, const ops::ExampleOperand& of) {
  using Kind = ops::ExampleOperand::Kind;
  if (of.kind == Kind::left_out) return nullptr;
  if (of.kind == Kind::constant) return b.constant(of.data);
  const std::string extents = bound_extents(b, of.extents);
  if (of.low != of.high) return b.indices(extents, of.low, of.high, of.dtype);
  return of.kind == Kind::weight ? b.weight(extents, of.fill, of.dtype) : b.input(extents, of.fill, of.dtype);
}

std::vector<Subject> recorded_cases() {
  CaseList list;
  for (const ops::OpDef* op : ops::all_ops()) {
    if (!op->examples) continue;
    for (const ops::Example& example : op->examples(op->type)) {
      const auto operands = [&](Builder& b) {
        std::vector<Value*> made;
        for (const ops::ExampleOperand& operand : example.operands) made.push_back(operand_of(b, operand));
        return made;
      };
      list.add(op->type, example.what, operands, example.attributes, bound_of(example.rounding), example.results,
               op->domain);
    }
  }
  return list.take();
}

}  // namespace

std::vector<Subject> all_cases() {
  std::vector<Subject> all = recorded_cases();
  for (Subject& subject : flow_cases()) all.push_back(std::move(subject));
  return all;
}

OperatorKey key_of(const Subject& subject) {
  const Node& node = *subject.graph->nodes().front();
  return {node.domain, node.op_type};
}

std::string name_of(const OperatorKey& key) {
  std::string name = key.first.empty() ? key.second : key.first + "_" + key.second;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

CasesByOperator by_operator(std::vector<Subject> cases) {
  CasesByOperator all;
  for (Subject& subject : cases) all[key_of(subject)].push_back(std::move(subject));
  return all;
}

const CasesByOperator& cases_by_operator() {
  static const CasesByOperator all = by_operator(all_cases());
  return all;
}

CaseList& CaseList::add(std::string_view type, std::string_view what, const Make& operands,
                        std::vector<Attribute> attributes, Bound bound, size_t results, std::string_view domain) {
  Builder builder(std::string(type) + ": " + std::string(what));
  Node* node = builder.node_of(results, type, operands(builder), std::move(attributes), domain);
  for (Value* result : node->outputs) builder.output(result);
  subjects_.push_back(builder.done(bound));
  return *this;
}

}  // namespace tessera::property
