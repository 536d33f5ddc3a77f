#pragma once

#include "tessera/bind/places.h"
#include "tessera/bind/signature.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

struct Decisions;  // decisions.h

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed.
class Binding {
 public:
  Binding(Subject subject, std::shared_ptr<const Decisions> decisions, Values values, Places places,
          KnownElements known, MachineProgram machine);

  const MachineProgram& machine() const { return machine_; }

  /// The place of a value after the last run.
  const Location& location_of(const Value* value) const { return *places_.find(value); }
  /// The part of a value's global tensor that this rank holds, and whether this rank writes it (the first rank that
  /// holds the part does).
  Box box(const Value* value) const { return values_.sizes().part(value); }
  bool writes(const Value* value) const { return values_.sizes().writes(value); }

  /// The contents of the arena at its peak by name, without whole outputs: for messages.
  std::vector<device::NamedBytes> pieces() const;

  /// Never frees its own tensors, because communications that were under way when a run failed may still use them.
  void abandon_memory() const;

  /// Every action with its queue, the places and types of its operands and results, and its cost; then the copies, the
  /// buffers, and the elements of expressions. Bindings with the same text do the same.
  std::string text() const;
  /// Of each step, for its time; without a signature for communications.
  std::vector<StepWork> works() const;

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

/// The binding that bind() would make for these symbols, derived from `like`, a binding of the rank for other symbols,
/// by computing only what changes (rebind.cpp). Null if more than sizes would change, or if deriving it would be as
/// much work.
std::unique_ptr<Binding> rebound(const Binding& like, const Symbols& symbols);

}  // namespace tessera::bind
