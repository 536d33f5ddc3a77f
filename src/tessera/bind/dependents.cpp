#include "tessera/bind/dependents.h"

#include <algorithm>

namespace tessera::bind {
namespace {

template <typename Set>
bool names_one(const Set& symbols, const std::vector<std::string>& of) {
  return std::any_of(of.begin(), of.end(), [&](const std::string& symbol) { return symbols.contains(symbol); });
}

bool names_one(const Shape& expressions, const std::vector<std::string>& of) {
  std::set<std::string> symbols;
  for (const Expr& expression : expressions) expression.collect_symbols(symbols);
  return names_one(symbols, of);
}

// Whether the rank's part of an input or output changes. Whole tensors are used in place if the device uses the host's
// memory.
bool part_changes(const Subject& subject, const Value* value, const std::vector<std::string>& symbols) {
  if (!value) return false;  // it is on other ranks
  const Sharding& sharding = subject.program.placement(value).sharding;
  if (sharding.is_whole()) return !subject.device().uses_host_memory() && names_one(value->shape(), symbols);
  Shape sizes;
  for (const DimSharding& dim : sharding.dims)
    for (const Part& part : dim.parts) sizes.push_back(part.size);
  return names_one(sizes, symbols);
}

}  // namespace

Dependents::Dependents(Subject subject, const std::vector<NodeGroup>& groups, const Values& values,
                       std::vector<const Value*> expressions, std::vector<std::set<std::string, std::less<>>> asked)
    : subject_(std::move(subject)), expressions_(std::move(expressions)), asked_(std::move(asked)) {
  for (const auto& [value, dims] : values.sizes().known()) bound_.push_back(value);
  for (size_t g = 0; g < groups.size(); ++g)
    for (const auto* all : {&groups[g].inputs, &groups[g].outputs})
      for (const Value* value : *all) {
        if (!value) continue;
        steps_of_[value].push_back(static_cast<int>(g));
        if (values.home(value) != value) steps_of_[values.home(value)].push_back(static_cast<int>(g));
      }
}

const Change& Dependents::on(const std::vector<std::string>& symbols) const {
  auto known = changes_.find(symbols);
  return known != changes_.end() ? known->second : changes_.emplace(symbols, change_by(symbols)).first->second;
}

Change Dependents::change_by(const std::vector<std::string>& symbols) const {
  Change change;
  for (const Value* value : bound_)
    if (names_one(value->shape(), symbols)) change.extents.push_back(value);
  for (const Value* value : expressions_)
    if (names_one(*value->content, symbols)) change.elements.push_back(value);
  const spmd::Program& program = subject_.program;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    if (part_changes(subject_, program.inputs[i].value, symbols)) change.inputs.push_back(i);
  for (size_t i = 0; i < program.outputs.size(); ++i)
    if (part_changes(subject_, program.outputs[i].value, symbols)) change.outputs.push_back(i);
  for (size_t step = 0; step < asked_.size(); ++step)
    if (names_one(asked_[step], symbols)) change.communications.push_back(static_cast<int>(step));
  return change;
}

const std::vector<int>& Dependents::steps_of(const Value* value) const {
  static const std::vector<int> none;
  auto steps = steps_of_.find(value);
  return steps == steps_of_.end() ? none : steps->second;
}

}  // namespace tessera::bind
