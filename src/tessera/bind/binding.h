#pragma once

#include "tessera/bind/places.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

struct Decisions;  // decisions.h

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed.
class Binding {
 public:
  Binding(Subject subject, std::shared_ptr<const Decisions> decisions, Values values, Places places,
          KnownElements known, MachineProgram machine);

  const MachineProgram& machine() const { return machine_; }

  /// Where the last run left a value.
  const Location& location_of(const Value* value) const { return *places_.find(value); }
  /// The part of a value's global tensor that this rank has, and whether it is the one that writes this part (the first
  /// of those that hold it).
  Box box(const Value* value) const { return values_.sizes().part(value); }
  bool writes(const Value* value) const { return values_.sizes().writes(value); }

  /// What is in the arena when most is, by name, whole outputs not: for messages.
  std::vector<device::NamedBytes> pieces() const;

  /// Leaves tensors of its own in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const;

  /// Every action with its queue, the places and types of its operands and results, and its cost; then the copies, the
  /// buffers, and the elements of expressions. Two bindings of the same text do the same.
  std::string text() const;

 private:
  friend std::unique_ptr<Binding> rebound(const Binding& like, const Symbols& symbols);

  Subject subject_;
  std::shared_ptr<const Decisions> decisions_;
  Values values_;
  Places places_;
  KnownElements known_;
  MachineProgram machine_;
};

/// Binds `program`, the rank's own, which must outlive the binding. The source is the list of the passes; each has a
/// file of its own in this folder.
std::unique_ptr<Binding> bind(std::shared_ptr<Rank> rank, const spmd::Program& program, const Symbols& symbols,
                              const Options& options);

/// The same binding as bind() makes for these symbols, found by looking only at what they change of `like`, a binding
/// of the rank for others (rebind.cpp). Null: it would be another one in more than sizes, or as much work.
std::unique_ptr<Binding> rebound(const Binding& like, const Symbols& symbols);

}  // namespace tessera::bind
