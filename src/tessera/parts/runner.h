#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compiler/programs.h"
#include "tessera/launch/loaded_program.h"
#include "tessera/parts/segmented_model.h"
#include "tessera/parts/sizes.h"
#include "tessera/parts/stepped_loop.h"

namespace tessera::parts {

/// Runs any model: as one program where that is possible; else in parts, one after the other, each compiled for the
/// values and sizes that decide its shapes: on its first run with these, and again once eight other sets came after, or
/// their programs had to make room in memory.
/// What a part hands to the next is whole, in memory of the host.
class Runner {
 public:
  /// Loads a program; where `states` is not null, its changing states are those.
  using Load = std::function<std::shared_ptr<launch::LoadedProgram>(const compiler::CompiledProgram& program,
                                                                    std::shared_ptr<runtime::StateStore> states)>;

  /// Compiles what can be compiled before a run. `over_processes`: the ranks are processes, which cannot run parts.
  /// Throws as compile_program() and `load` do, and a user error for what a model in parts cannot have: ranks that are
  /// processes, states that change, and nodes that are placed.
  Runner(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options, Load load, bool over_processes);

  /// Whole inputs to whole outputs, as Executor::run; where the model runs in parts, `given` outputs are copied.
  Tensors run(const Tensors& inputs, const runtime::RunLimits& limits = {}, Tensors given = {});

  /// A program and where it is loaded.
  struct Loaded {
    std::shared_ptr<const compiler::CompiledProgram> program;
    std::shared_ptr<launch::LoadedProgram> ranks;
  };
  /// What the last run ran, in order: one for each iteration, where a loop's body is a part.
  std::vector<Loaded> ran() const;
  /// Compiles, loads and plans what runs with such inputs. Null members where the model runs in parts for them.
  Loaded prepare(const Tensors& inputs);
  /// Bytes of each rank at its peak for such inputs. Throws a user error where the model runs in parts for them.
  std::vector<size_t> peak_bytes(const Tensors& inputs);
  /// The latest program whose states, if it has any, are the model's: with the model as one program, that; else what
  /// ran last. Null members before.
  Loaded latest() const;

 private:
  /// A model at sizes that its program does not take, in parts; null: it has none there, either.
  struct AtSizes {
    Symbols sizes;
    std::unique_ptr<Runner> parts;
  };
  /// A part compiled for some values and sizes, and for inputs of some types. If it has parts of its own, they are in
  /// `parts`, and `loaded` is empty.
  struct Made {
    Tensors values = {};
    Types types = {};
    Symbols sizes = {};
    std::shared_ptr<const SegmentedModel> model;
    Loaded loaded = {};
    std::unique_ptr<Runner> parts = nullptr;
    std::optional<EqualSizes> equal = std::nullopt;  ///< found when it first runs
    std::list<AtSizes> at_sizes = {};                ///< the latest first
  };
  struct Loop;
  struct Part {
    const Segment* segment;
    std::list<Made> made = {};  ///< the last used first
    std::map<const Between*, std::unique_ptr<Loop>> loops = {};
  };
  /// A loop that runs after a part.
  struct Loop {
    Part body;
    Types found;  ///< as run_stepped() wants them
  };
  /// What a part takes from what is known before it.
  struct Given {
    Tensors values;  ///< for which it is compiled
    Tensors inputs;  ///< of its program
    Types types;     ///< of its inputs, as far as they differ from those that it declares
    Symbols sizes;   ///< for which it is compiled
  };

  /// Whatever the values, the states that step are the same: those of the first program that has any.
  using SharedStore = std::shared_ptr<std::shared_ptr<runtime::StateStore>>;

  Runner(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options, Load load, bool over_processes,
         int depth, SharedStore states);
  std::unique_ptr<Runner> nested(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options) const;
  Loaded load(const std::shared_ptr<const SegmentedModel>& model, const compiler::ProgramOptions& options) const;

  compiler::ProgramOptions options_for(const SegmentedModel& part) const;
  Given given_for(const Part& part, const Tensors& known, const Types& types) const;
  Made& made_for(Part& part, const Given& given);
  Made make(const Part& part, const Given& given) const;
  Runner* parts_at(Made& made, const Tensors& inputs) const;
  void require_inputs(const Tensors& inputs) const;

  Loaded one_program_for(const Tensors& inputs, Tensors& given);
  static std::vector<size_t> peaks_of(const Loaded& loaded, const Tensors& given);
  Tensors run_in_parts(const Tensors& inputs);
  bool drop_one();
  static bool drop_one_of(Part& part);
  Tensors run_parts(const Tensors& inputs, Types& types);
  void run_program(Part& part, Tensors& known, Types& types);
  void run_nested(Runner& inner, const Tensors& given, Tensors& known, Types& types);
  void run_between(Part& part, const Between& between, Tensors& known, Types& types);
  std::vector<Tensor> run_loop(Part& part, const Between& between, const std::vector<Tensor>& operands,
                               const std::vector<TensorType>& operand_types, const Tensors& known, const Types& types,
                               std::vector<TensorType>& result_types);

  TensorType bindable(const std::string& name, TensorType type) const;
  void add_own_symbols(const Graph& graph, const Tensors& given, Types& types) const;
  Shape shape_of(const std::string& name, const Tensor& tensor, const Types& types) const;

  const std::shared_ptr<const SegmentedModel> model_;
  const compiler::ProgramOptions options_;
  const Load load_;
  const bool over_processes_;
  const int depth_;  ///< how many models it is a part of
  const SharedStore states_;
  std::optional<Made> whole_;  ///< of a model that is compiled before it runs
  std::vector<Part> parts_;
  std::vector<Loaded> ran_;    ///< in the last run
  Loaded latest_;              ///< that ran, also if a later run has failed before its first program
  runtime::RunLimits limits_;  ///< of the run
  mutable std::mutex running_;
};

}  // namespace tessera::parts
