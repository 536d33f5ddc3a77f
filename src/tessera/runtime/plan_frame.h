#pragma once

#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

/// What certain symbols can change of a plan.
struct RankPlan::Change {
  std::vector<const Value*> extents, elements;  ///< values whose extents, expressions whose elements name one
  std::vector<size_t> inputs, outputs;          ///< of the program, whose parts do
  std::vector<int> communications;              ///< steps that asked for one
};

/// What the plans of one program for several sizes have in common: which nodes go together, their order, which buffers
/// there are and for how long, kernels and places wherever sizes do not show. It is made with a first plan and holds
/// all of it, but for the memory plan; plans that rebound() makes of it say only what is different. Used only from the
/// rank's own thread.
struct RankPlan::Frame {
  Symbols symbols;  ///< of the first plan
  std::vector<kernels::NodeGroup> groups;
  std::map<const Value*, int64_t> blocked;  ///< values that lie in blocks of channels
  std::map<const Value*, kernels::Placed> views;
  std::shared_ptr<kernels::Regrouping> again;
  std::unordered_map<const Value*, Dims> dims;
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions
  std::map<const Value*, Location> direct;                ///< results that are made where outputs or states lie
  std::vector<StateSlot*> slots;                          ///< of states that change
  std::map<const Value*, size_t> slot_of;                 ///< of these states
  std::map<const Value*, const Value*> over;              ///< results that are made over a state's value: that state
  /// States that step otherwise: their next value is in the slot's spare, or is copied there after the last action.
  struct Exchange {
    size_t slot = 0;
    const Value* copied = nullptr;  ///< null: it is made there
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
  std::unordered_map<const Value*, std::vector<int>> steps_of;  ///< who reads or makes it, or what it lies in
  std::vector<std::set<std::string, std::less<>>> asked;        ///< by step: symbols, of communications
};

}  // namespace tessera::runtime
