#pragma once

#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

/// The parts of a plan that certain symbols can change.
struct RankPlan::Change {
  std::vector<const Value*> extents, elements;  ///< values whose extents, expressions whose elements name a symbol
  std::vector<size_t> inputs, outputs;          ///< of the program, whose parts name one
  std::vector<int> communications;              ///< steps that asked for one
};

/// The common part of one program's plans for several sizes: groups of nodes, their order, buffers and their lifetimes,
/// and the kernels and places that do not depend on sizes. It is made with a first plan and holds all of that plan but
/// the memory plan; plans that rebound() derives from it hold only the differences. Only the rank's own thread uses it.
struct RankPlan::Frame {
  Symbols symbols;  ///< of the first plan
  std::vector<kernels::NodeGroup> groups;
  std::map<const Value*, int64_t> blocked;  ///< values that lie in blocks of channels
  std::map<const Value*, kernels::Placed> views;
  std::shared_ptr<kernels::Regrouping> again;
  std::unordered_map<const Value*, Dims> dims;
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions
  std::map<const Value*, Location> direct;    ///< results that are computed in the memory of outputs or states
  std::vector<StateSlot*> slots;              ///< of states that change
  std::map<const Value*, size_t> slot_of;     ///< of these states
  std::map<const Value*, const Value*> over;  ///< results that overwrite a state's value: that state
  /// States that step otherwise: their next value is in the slot's spare, or is copied there after the last action.
  struct Exchange {
    size_t slot = 0;
    const Value* copied = nullptr;  ///< null: it is computed there
  };
  std::vector<Exchange> exchanges;
  std::map<const Value*, Location> locations;
  std::map<const Value*, std::vector<Span>> uses;  ///< of a value's memory, in actions; some end after the run
  std::vector<Tensor> bound_expressions;
  std::vector<Lifetime> lifetimes;
  std::vector<InputCopy> copies;
  std::vector<std::shared_ptr<Step>> steps;
  std::vector<Action> actions;  ///< upon the steps, in running order
  std::vector<Span> spans;      ///< by step, in actions
  std::shared_ptr<std::vector<StepInfo>> infos = std::make_shared<std::vector<StepInfo>>();  ///< of the actions
  std::shared_ptr<std::byte[]> names;       ///< of the steps, each ended by 0, for flight records
  std::vector<const char*> name_of_action;  ///< within names
  bool communicates = false;

  std::map<std::vector<std::string>, Change> changes;           ///< by the symbols
  std::unordered_map<const Value*, std::vector<int>> steps_of;  ///< that read or make it, or the memory it lies in
  std::vector<std::set<std::string, std::less<>>> asked;        ///< by step: symbols, of communications
};

}  // namespace tessera::runtime
