#pragma once

#include "tessera/bind/binding.h"
#include "tessera/ir/flow.h"

namespace tessera::bind {

/// The parts of a binding that certain symbols can change.
struct Binding::Change {
  std::vector<const Value*> extents, elements;  ///< values whose extents, expressions whose elements name a symbol
  std::vector<size_t> inputs, outputs;          ///< of the program, whose parts name one
  std::vector<int> communications;              ///< steps that asked for one
};

/// The packed form of a weight, which a step reads instead of it.
struct Binding::PackedWeight {
  Node node;  ///< runs instead of the group's root; its operands are named as the root's
  kernels::TensorDesc desc;
  Location place;
};

/// The common part of one program's bindings for several sizes: groups of nodes, their order, buffers and their
/// lifetimes, and the kernels and places that do not depend on sizes. It is made with a first binding, whose machine
/// program it keeps; bindings that rebound() derives from it hold only the differences. Only the rank's own thread uses
/// it.
struct Binding::Frame {
  Symbols symbols;  ///< of the first binding
  std::vector<NodeGroup> groups;
  flow::Flow flow;
  std::vector<int> region_of_group;         ///< in `flow`; -1: none
  std::vector<Span> region_spans;           ///< by region, in actions
  std::map<const Value*, int64_t> blocked;  ///< values that lie in blocks of channels
  std::map<const Value*, Alias> views;
  std::shared_ptr<Regrouping> again;
  std::unordered_map<const Value*, Dims> dims;
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions
  std::map<const Value*, Location> direct;    ///< results that are computed in the memory of outputs or states
  std::map<int, PackedWeight> packed;         ///< by step
  std::map<const Value*, size_t> slot_of;     ///< of states that change
  std::map<const Value*, const Value*> over;  ///< results that overwrite a state's value: that state
  /// Exchanges by their slots, with the values that are copied to the spares; null: those are computed there.
  std::vector<std::pair<size_t, const Value*>> copied;
  std::map<const Value*, Location> locations;
  std::map<const Value*, std::vector<Span>> uses;  ///< of a value's memory, in actions; some end after the run
  std::vector<Tensor> bound_expressions;
  std::map<const void*, const void*> host_elements;
  std::vector<Occupant> occupants;  ///< of buffers, until the machine program has them
  std::vector<Action> actions;      ///< upon the steps, in running order
  std::vector<Span> spans;          ///< by step, in actions
  std::vector<Expr> flops;          ///< by step
  MachineProgram machine;           ///< of the first binding
  bool communicates = false;

  std::map<std::vector<std::string>, Change> changes;           ///< by the symbols
  std::unordered_map<const Value*, std::vector<int>> steps_of;  ///< that read or make it, or the memory it lies in
  std::vector<std::set<std::string, std::less<>>> asked;        ///< by step: symbols, of communications
};

}  // namespace tessera::bind
