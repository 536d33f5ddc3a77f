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

/// Runs any model: as one program if possible, else in parts, one after the other. Each part is compiled for the values
/// and sizes that decide its shapes when it first runs with them; its program is kept until eight other sets have
/// followed or memory is short. Tensors between parts are whole, in host memory.
class Runner {
 public:
  /// Loads a program; if `states` is not null, with its changing states.
  using Load = std::function<std::shared_ptr<launch::LoadedProgram>(const compiler::CompiledProgram& program,
                                                                    std::shared_ptr<runtime::StateStore> states)>;

  /// Compiles what can be compiled before a run. `over_processes`: ranks are processes, which cannot run parts. Throws
  /// like compile_program() and `load`, and a user error for what is not supported in parts: ranks that are processes,
  /// changing states, and placed nodes.
  Runner(std::shared_ptr<const SegmentedModel> model, compiler::ProgramOptions options, Load load, bool over_processes);

  /// Computes whole outputs from whole inputs, like Executor::run; if the model runs in parts, outputs are copied into
  /// `given`.
  Tensors run(const Tensors& inputs, const runtime::RunLimits& limits = {}, Tensors given = {});

  /// A program and where it is loaded.
  struct Loaded {
    std::shared_ptr<const compiler::CompiledProgram> program;
    std::shared_ptr<launch::LoadedProgram> ranks;
  };
  /// The programs of the last run, in order; a loop whose body is a part has one for each iteration.
  std::vector<Loaded> ran() const;
  /// Compiles, loads and plans the program for such inputs. Members are null if the model runs in parts for them.
  Loaded prepare(const Tensors& inputs);
  /// Bytes of each rank at its peak for such inputs. Throws a user error if the model runs in parts for them.
  std::vector<size_t> peak_bytes(const Tensors& inputs);
  /// The latest program that holds the model's states, if it has any: the model's own program, or else the one that ran
  /// last. Members are null before the first run.
  Loaded latest() const;

 private:
  /// A model in parts at sizes that its program does not support; null if parts do not help there.
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
    std::optional<EqualSizes> equal = std::nullopt;  ///< determined at its first run
    std::list<AtSizes> at_sizes = {};                ///< latest first
  };
  struct Loop;
  struct Part {
    const Segment* segment;
    std::list<Made> made = {};  ///< last used first
    std::map<const Between*, std::unique_ptr<Loop>> loops = {};
  };
  /// A loop that runs after a part.
  struct Loop {
    Part body;
    Types found;  ///< as run_stepped() expects them
  };
  /// What a part gets from the inputs and the parts before it.
  struct Given {
    Tensors values;  ///< for which it is compiled
    Tensors inputs;  ///< of its program
    Types types;     ///< of its inputs, where they differ from the declared ones
    Symbols sizes;   ///< for which it is compiled
  };

  /// Changing states are the same for all values: those of the first program that has any.
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
  const int depth_;  ///< number of models that this one is nested in
  const SharedStore states_;
  std::optional<Made> whole_;  ///< of a model that is compiled before it runs
  std::vector<Part> parts_;
  std::vector<Loaded> ran_;    ///< in the last run
  Loaded latest_;              ///< the last that ran, even if a later run failed before its first program
  runtime::RunLimits limits_;  ///< of the run
  mutable std::mutex running_;
};

}  // namespace tessera::parts
