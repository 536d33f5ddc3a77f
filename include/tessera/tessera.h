#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"
#include "tessera/mesh/mesh.h"
#include "tessera/mesh/topology.h"
#include "tessera/tensors.h"

/// Load a model, say how it is to be split over a mesh, compile, run:
///
///     tessera::Model model = tessera::Model::load("model.onnx");
///     tessera::Plan plan;
///     plan.presets = "megatron";
///     tessera::Program program = tessera::compile(model, tessera::Mesh::parse("tp=2"), plan);
///     tessera::Session session(program);
///     tessera::Tensors outputs = session.run({{"x", x}});
///
/// Everything throws tessera::Error: of kind `user` for what the caller can mend, of kind `running` for the rest.
namespace tessera {
inline namespace v1 {

/// "0.1.0"
std::string_view version();

/// An ONNX model (IR ≤ 14, opsets 1 to 28). Large weights are mapped, not read: the file must not be changed in place
/// while the model lives. Immutable; copies share.
class Model {
 public:
  /// Reads protobuf, or ONNX's text syntax if the name ends with ".onnxtxt". Throws a user error if the file is
  /// missing, damaged or not supported.
  static Model load(const std::filesystem::path& path);

  struct Impl;
  Model() = default;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  const std::filesystem::path& path() const;
  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  /// Names of the symbolic dimensions of the inputs.
  std::vector<std::string> symbols() const;
  /// `sizes` completed by defaults at which the model runs: 2 for symbols named like a batch and 16 for others, changed
  /// where its operators want others (a total is past + sequence, an image is as large as its windows need). `note`, if
  /// given, receives a line that names the defaults, and why the model does not run at these sizes if none were found;
  /// "" if there were none. Throws a user error for a symbol that the model does not have.
  SymbolSizes complete(const SymbolSizes& sizes, std::string* note = nullptr) const;

  /// This model for these sizes only: its symbolic dimensions of those names become numbers. Throws as complete() does.
  Model with_sizes(const SymbolSizes& sizes) const;

  /// This model with these tensors for outputs, in that order: outputs of the model, or any others that its nodes make.
  /// What none of them needs is not computed. Throws a user error for a name that no node's result has.
  Model with_outputs(const std::vector<std::string>& names) const;

  /// The plan that the file carries, if write_annotated wrote it; else an empty one. To follow it:
  /// compile(model, mesh, plan.over(model.plan())).
  struct Plan plan() const;
  /// Writes the model with a plan in its metadata, to be split where it is loaded. The plan's mesh may leave sizes
  /// open, as "dp=2,tp=?". Each annotation also stands in the metadata_props of the values that it means, as
  /// "tessera.annotation". Throws a user error for a plan that cannot be followed, or a path that cannot be written.
  void write_annotated(const std::filesystem::path& path, const struct Plan& plan) const;

  /// The device configurations for which the file says how it is split: ONNX's multi-device annotations (IR version
  /// 11). See docs/annotations.md.
  std::vector<std::string> configurations() const;
  /// This model as its annotations for a configuration say. Throws a user error that names the first fault in them.
  struct ConfiguredModel configured(const std::string& configuration) const;
  /// The same where `before` comes before what the annotations say: its annotations, states and stored layouts name
  /// tensors that stay as they are, though they might be stacked with others.
  struct ConfiguredModel configured(const std::string& configuration, const struct Plan& before) const;
  /// This model with what the plan makes of it over the mesh as annotations for a configuration, in place of what it
  /// says for that: how each node that compilation leaves under its results' names takes its operands and gives its
  /// results. Device i is rank i. Throws a user error for a plan that cannot be followed.
  Model annotated(const Mesh& mesh, const struct Plan& plan, const std::string& configuration) const;
  /// This model with what follows from its annotations for a configuration as further annotations for it, so that every
  /// operand and result which carries data has one. Throws as configured() and compile() do.
  Model completed(const std::string& configuration) const;
  /// Writes the model; its larger weights go into a file beside it. Throws a user error for a path that cannot be
  /// written.
  void write(const std::filesystem::path& path) const;

  /// This model with states that change from run to run. "w=next.w": the initializer w takes the value of the output
  /// next.w after each run, and next.w is an output no longer. "*=next.*" pairs all initializers with outputs of such
  /// names, '*' being the same text in both; those without a partner stay as they are. "w*", without "=": another
  /// program that shares the states changes these (SessionOptions::share_states). Throws a user error for a pattern
  /// that pairs nothing, and for a pair of unequal types.
  Model with_states(const std::vector<std::string>& patterns) const;

  /// Inputs whose elements decide shapes, or must be known for another reason before the model is compiled: axes, the
  /// shape of a Reshape. compile() takes the model with_values() of these; a ModelSession compiles it as runs need it.
  std::vector<std::string> value_inputs() const;
  /// This model with these inputs as constants; they are inputs no longer. Throws a user error for a name that no input
  /// has, and for another dtype than the input's.
  Model with_values(const Tensors& values) const;
  /// Symbols whose sizes must be known before the model is compiled, because they decide how many tensors a sequence
  /// has: a loop fills one in as many iterations. compile() takes the model with_sizes() of these, which may ask for
  /// others in turn; a ModelSession compiles it as runs need it.
  std::vector<std::string> size_symbols() const;
  /// This model with_sizes() of its size_symbols(), and of those for which it then asks, until it asks for none.
  /// `sizes` may leave symbols out, as for complete().
  Model with_needed_sizes(const SymbolSizes& sizes) const;
  /// Whether shapes depend on what the model computes, so that no program can hold it, and only a ModelSession runs it.
  bool runs_in_parts() const;
  /// The same for inputs of these shapes: two symbols that a branch or loop takes for one size may differ there.
  bool runs_in_parts(const Tensors& inputs) const;
  /// If a branch, a loop or an operator was found to be the reason for this only when the model was rewritten: what was
  /// found. Else empty.
  std::string why_in_parts() const;

  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// How a model is to be laid over a mesh. What stands first in `annotations` wins; presets come last.
struct Plan {
  /// "dp+megatron:x": presets joined by '+', each with an axis of its own usual name or the one after the colon. Empty:
  /// what the axes' names imply, unless there are annotations. "none": none, whatever the axes are called.
  std::string presets;

  struct Annotation {
    /// "NAME=[-, tp]": one entry per dimension. NAME may hold '*'. An entry "..." stands for any number of dimensions
    /// that stay whole; tensors with fewer dimensions than the other entries are left alone. See tessera run --help.
    std::string text;
    std::string by = "annotation";  ///< who said so, for explain and messages
    /// Where it cannot be followed, it is followed as nearly as can be, with a warning; else that is a user error.
    bool optional = false;
  };
  std::vector<Annotation> annotations;
  /// "NAME=pp:1": the nodes of that name, that make a tensor of that name, or that come from a module of that name (as
  /// PyTorch's exporter notes it), run only on the ranks at that index of the axis ("pp:1,dp:0": of several), and their
  /// weights are stored only there; NAME may hold '*'. The first that names a node wins. Their tensors are split over
  /// other axes as ever.
  std::vector<Annotation> places;
  /// Initializers that change from run to run, as Model::with_states takes them: "*=next.*".
  std::vector<std::string> states;
  /// "NAME=[dp, ...]": how parameters and other states are stored between runs, whatever layout their uses compute in.
  /// Written as annotations are; the first that names a state wins. What none names is stored as its uses want it.
  std::vector<Annotation> storage;
  /// States and parameters, '*' matching any characters, whose gathered form stays from the first use in a run to the
  /// last, instead of being gathered for each: less communication for more memory.
  std::vector<std::string> keep_gathered;
  /// Which results of a training step's forward pass the backward pass computes again, instead of holding them:
  ///   "" or "none"    none;
  ///   "selective"     all but what products with parameters, convolutions, attention and communications make;
  ///   "full"          all but what lies between blocks, as the residual stream of a transformer;
  ///   "auto"          the least work that fits into CompileOptions::memory_limit ("auto:2e9": that frees as many
  ///   bytes); "h.*.gelu,…"    results of these names; '*' matches any characters.
  std::string recompute;
  /// When keys and values of attention, whose queries are split, go around a ring of ranks in blocks instead of being
  /// gathered: "" or "auto" where that takes less time on the topology's links, "always", "never".
  std::string ring_attention;
  /// Small collectives of one kind and group start as one, up to this many bytes together; 0: each starts alone. By
  /// default it follows from the latency and the bandwidth of the topology's links, or is 256 KiB if nothing is known.
  std::optional<int64_t> bucket_bytes;
  /// A change of layout in which a rank receives more bytes than this, at the sizes that choices assume, is a user
  /// error that names the tensor, what needs it, both layouts, the steps and the bytes. By default, none is too large.
  std::optional<int64_t> max_reshard_bytes;

  /// Sizes that choices by cost assume; correctness does not depend on them.
  SymbolSizes shapes;
  /// What a float32 model computes in: float32, as if nothing is said, bfloat16 or float16. Its inputs and
  /// outputs stay float32.
  std::optional<DType> dtype;
  /// "dp=2,tp=4": the mesh to use where the caller names none; empty: none. A plan that a model carries may leave sizes
  /// open ("tp=?"): then somebody has to say them.
  std::string mesh;

  /// Reads {"mesh": "tp=2", "presets": "megatron", "annotations": ["w=[-,tp]"], "places": ["h.1.*=pp:1"],
  /// "states": ["*=next.*"], "store": ["*=[dp,...]"], "keep_gathered": ["head*"], "shapes": {"batch": 8}, "recompute":
  /// "full", "ring_attention": "always", "bucket_bytes": 65536, "max_reshard_bytes": 1048576, "dtype": "bfloat16"},
  /// each key optional. Throws a user error naming `source` for anything else.
  static Plan from_json(std::string_view text, std::string_view source = "plan");
  std::string to_json() const;
  /// What `dtype` is called wherever a person names it: "float32" or "fp32", "bfloat16" or "bf16", "float16" or "fp16".
  /// Throws a user error naming `source` for any other name, also of a type that models do not compute in.
  static DType dtype_named(std::string_view name, std::string_view source);
  /// This plan, completed by a weaker one: its annotations and places come after ours, the rest where we say nothing.
  /// Throws a user error if our mesh is not one that the weaker plan leaves open.
  Plan over(const Plan& weaker) const;
};

/// A model as its annotations for a device configuration say: compile(model, Mesh::parse(plan.mesh), plan).
struct ConfiguredModel {
  /// The model without annotations. Where a node wants an operand in another layout than others do, or a result at
  /// another place than it runs, an Identity node stands between.
  Model model;
  Plan plan;                          ///< mesh, annotations and places
  std::vector<int64_t> devices;       ///< of the configuration, by rank
  std::vector<std::string> warnings;  ///< what is done otherwise than the annotations say
};

/// Communication of one step of a program, in order of first use.
struct CollectiveSummary {
  std::string kind;               ///< "all_reduce", "all_gather", "reduce_scatter", "all_to_all", …
  std::vector<std::string> axes;  ///< the group: ranks that differ only along these
  int64_t count = 0;              ///< operations of a run; in a loop, as often as its trip count says, if that is known
  int64_t starts = 0;             ///< those of a bucket start as one
  int64_t bytes = 0;              ///< that rank 0 receives, all operations together
};

/// A change of layout that the compiler had to insert.
struct ReshardSummary {
  std::string tensor;              ///< of the model
  std::string consumer;            ///< the node or output that needs it
  std::string from, to;            ///< shardings, as annotations are written
  std::vector<std::string> steps;  ///< "AllGather tp"; a Slice moves nothing
  int64_t bytes = 0;               ///< that rank 0 receives
  std::string reason;              ///< why the consumer takes it whole where it was split; "" if it does not
};

struct ProgramSummary {
  std::vector<CollectiveSummary> collectives;
  std::vector<ReshardSummary> reshards;
  std::vector<std::string> notes;     ///< what was assumed or implied
  std::vector<std::string> warnings;  ///< what the caller may not have meant
  SymbolSizes shapes;                 ///< that the bytes are for
  /// What the program takes to be equal of sizes: "total = past + sequence (Add 'masked')". A session compiles a model
  /// anew where one of them is 1 in a broadcast and the other is not; a written program is for such sizes only if it
  /// was made from the model with_sizes() of them.
  std::vector<std::string> equal_sizes;
};

/// How one tensor of the model came to its layout.
struct Explanation {
  struct Axis {
    int dim = 0;       ///< of the tensor
    std::string part;  ///< the part of the dimension that it splits, as "6" of 6·32
    std::string axis;
    std::string by;  ///< an annotation, a preset, or the operator that passed it on and from where
    int round = 0;   ///< of propagation; 0: annotated
  };
  struct Lost {
    int dim = 0;
    std::string axis, reason;
  };
  /// A place where the tensor occurs: its producer, then each consumer.
  struct Place {
    std::string where;   ///< "stored", "produced by MatMul 'q'", "used by Add 'r'", "output"
    std::string layout;  ///< the sharding there, partial axes included
    std::vector<Axis> axes;
    std::vector<Lost> lost;
  };
  TensorInfo tensor;           ///< the stack, if the tensor is a parameter that rewriting has stacked with others
  std::optional<int64_t> row;  ///< of the stack
  std::vector<Place> places;
  std::vector<ReshardSummary> reshards;  ///< of this tensor
};

/// A parameter or other state of a program.
struct StateInfo {
  TensorInfo tensor;                 ///< whole
  bool changes = false;              ///< from run to run; see Model::with_states
  int64_t bytes = 0;                 ///< of the largest shard that a rank stores
  std::string storage;               ///< the layout between runs, as annotations are written
  std::vector<std::string> compute;  ///< the layouts in which its uses take it, in order of first use
  /// If the program holds it as several tensors with layouts of their own: these, and the index of the first element of
  /// each in the whole one. `bytes` is their sum, and `storage` and `compute` are empty.
  std::vector<StateInfo> pieces;
  std::vector<int64_t> begin;  ///< of a piece
};

/// What one rank holds and does in a step.
struct RankFigures {
  int64_t peak_bytes = 0;       ///< at its peak, weights included
  int64_t parameter_bytes = 0;  ///< of the weights, and all other states, that it holds
  /// At the peak, of results that the first output (a training step's loss) is computed by, and of what is computed
  /// again of these.
  int64_t activation_bytes = 0;
  int64_t gradient_bytes = 0;  ///< at the peak, of all other results
  int64_t copy_bytes = 0;      ///< of states, to write them from (RunSettings::checkpoints); a part of the peak
  int64_t flops = 0;           ///< of one step
};

/// What a rank holds during one operation of a run, in bytes.
struct MemoryMoment {
  std::string operation;                   ///< "MatMul 'h.0'", "wait for AllReduce 'h.0'"
  int64_t states = 0;                      ///< parameters and all others
  int64_t activations = 0, gradients = 0;  ///< as RankFigures counts them
  int64_t buffers = 0;                     ///< inputs, scratch memory, packed forms and second buffers of states
};

/// Called after each stage of compilation with its name; `text` makes the text form.
using StageObserver = std::function<void(std::string_view stage, const std::function<std::string()>& text)>;

/// The names of all stages, in order. lower_precision runs only if a plan asks for another dtype.
std::vector<std::string> stages();

/// How many models a written program is: one per class of like ranks, each rank's weights cut out in files of their own
/// (mpmd); one that every rank runs, which cuts its part out of whole weights (spmd); or one whose only node, a
/// ParallelFor, holds what every rank runs, with whole inputs, weights and outputs (parallel_for).
enum class Form { mpmd, spmd, parallel_for };
/// What a written program's collectives are: nodes of domain tessera.comm, or calls of ONNX functions in the model that
/// are made of Send, Recv and ONNX's own operators.
enum class Lower { collectives, primitives };
/// What orders communication in a written model: a token threaded through it, or the place of the nodes.
enum class Order { tokens, position };
/// How a written model learns the number of the rank that runs it: from an input "tessera.rank", from RankId and
/// AxisIndex nodes, or it is folded in, which makes one model per rank.
enum class RankIdentity { input, op, constant };
/// What a rank's number is in a written model: an int64 scalar, or a handle (ONNX's opaque type Rank of domain
/// tessera.comm) that only the dialect's operators read. A handle cannot be folded in.
enum class RankType { integer, opaque };

/// Whose operators collectives are written as; docs/dialects.md says what each can express. Only ours has tokens, and
/// operators that give the rank: the others' models are ordered by position, one per rank where they depend on it.
enum class Dialect { tessera, ort, tensorrt };

/// The form of a written program. All forms run with the same bits but where primitives add in another order.
struct WriteOptions {
  Lower lower = Lower::collectives;
  Order order = Order::tokens;
  RankIdentity rank_id = RankIdentity::op;
  RankType rank_type = RankType::integer;
  Form form = Form::mpmd;
  Dialect dialect = Dialect::tessera;  ///< others: by position, the rank folded in, of collectives only: their programs
                                       ///< are compiled with Plan::ring_attention "never"

  /// {"lower": "primitives", "rank_id": "op"}, as the command line and manifests have it; what is left out keeps its
  /// default. Throws a user error for a word that is none.
  static WriteOptions from_words(const std::map<std::string, std::string>& words);
  std::map<std::string, std::string> words() const;
};

struct SessionOptions;

/// One program for all ranks of a mesh, communication included. Immutable; copies share.
class Program {
 public:
  const Mesh& mesh() const;
  std::vector<TensorInfo> inputs() const;
  std::vector<TensorInfo> outputs() const;
  /// Parameters and other states as the model names them.
  std::vector<StateInfo> states() const;
  const ProgramSummary& summary() const;
  /// The text form: ONNX text syntax, with each value's sharding as a comment.
  std::string text() const;
  /// Throws a user error for a tensor that the model does not have, or that a larger operator took up: name it in
  /// CompileOptions::keep. can_explain() tells beforehand.
  bool can_explain(const std::string& tensor) const;
  Explanation explain(const std::string& tensor) const;
  /// Bytes that `rank` needs at its peak, weights included, at those sizes. For a mesh of any size.
  int64_t peak_bytes(int64_t rank, const SymbolSizes& sizes) const { return figures(rank, sizes).peak_bytes; }
  /// The same and more; sizes that are not given are those that choices by cost assumed.
  RankFigures figures(int64_t rank, const SymbolSizes& sizes = {}) const;
  /// Bytes that a process needs at its peak for all of its ranks (RunSettings::process_ranks), at the sizes that
  /// choices by cost assumed; of unlike processes, the most. Weights that ranks share count once; weights that stay
  /// mapped from files do not count. This is what SessionOptions::memory_limit counts.
  int64_t process_bytes() const;
  /// The same of a process that has a session of `other`, too, with which it shares states.
  int64_t process_bytes_with(const Program& other) const;
  /// One rank of each class of ranks that run alike: figures of others are theirs, or differ by a unit of a dimension.
  std::vector<int64_t> unlike_ranks() const;
  /// Bytes of this program's states on `rank` that its sessions share with those of `other` (share_states): of states
  /// that change, and of others that both store alike.
  int64_t shared_bytes(int64_t rank, const Program& other) const;
  /// What `rank` holds during each operation of a run, in order.
  std::vector<MemoryMoment> memory_over_time(int64_t rank, const SymbolSizes& sizes = {}) const;
  /// The machine program of `rank` at those sizes, as text (docs/devices.md): every step with places, queues and costs,
  /// and every buffer, as a session with these options has them on a host of its own. Nothing is loaded.
  std::string machine(int64_t rank, const SymbolSizes& sizes, const SessionOptions& options) const;

  /// Writes the program as a folder of ONNX models, whole or not at all. An older program there is replaced; anything
  /// else there is a user error, and so is a program that was itself read.
  void write(const std::filesystem::path& folder, const WriteOptions& options = {}) const;
  /// Reads what write() wrote. Files that have changed since are a user error; models may have with `changed_models`,
  /// as an ONNX tool saves them anew: then check_program says whether what they are now fits (check.h).
  static Program read(const std::filesystem::path& folder, bool changed_models = false);
  /// Whether `path` looks like a folder that write() wrote.
  static bool is_written(const std::filesystem::path& path);

  struct Impl;
  explicit Program(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// How ranks will run a program, as far as it decides what memory that takes (SessionOptions).
struct RunSettings {
  int threads_per_rank = 1;  ///< 0: the cores divided among `machine_ranks`
  int machine_ranks = 0;     ///< ranks on one machine; 0: all
  bool overlap = true;
  int prefetch = 4;
  bool checkpoints = false;
  int process_ranks = 1;  ///< ranks that one process runs as threads; 0: all
};

struct CompileOptions {
  std::vector<std::string> keep;  ///< tensors that must survive by name, because a question will be about them
  StageObserver observe;
  /// The mesh's links. Where an axis runs over several kinds, collectives over it go level by level if that pays.
  Topology topology;
  /// Bytes that a process may need at its peak for all of its ranks (Program::process_bytes), at the plan's sizes; more
  /// is a user error that names the largest tensors. 0: any.
  size_t memory_limit = 0;
  RunSettings run;  ///< what the program's figures, the limit, and recomputation under a limit are for
  /// A program compiled before, for sessions that share states with its sessions (SessionOptions::share_states): those
  /// that change lie here as they lie there, whatever this model computes. A training step comes first, its evaluation
  /// after it. States that cannot lie alike are a user error; requests of Plan::storage for states that only the other
  /// program has are none.
  std::optional<Program> sharing = std::nullopt;
};

/// Throws user errors that name the operator, annotation, preset, axis or link that is wrong.
Program compile(const Model& model, const Mesh& mesh, const Plan& plan = {}, const CompileOptions& options = {});

class Connection;

/// The names of devices that ranks can compute on (SessionOptions::device).
const std::vector<std::string>& devices();

/// A process runs so many ranks as threads, at most.
inline constexpr int64_t kMostRankThreads = 256;

struct SessionOptions {
  int threads_per_rank = 0;  ///< 0: the cores divided among the machine's ranks, at least 1
  /// What each rank computes on: "cpu", or "simulated", a CPU that behaves like an accelerator, for tests,
  /// with as much memory as "simulated:512M" says (docs/devices.md).
  std::string device = "cpu";
  /// This process is one rank of several, which all make the same sessions and calls in the same order; see launch.h.
  /// Null: all ranks are threads of this process.
  std::shared_ptr<Connection> connection;
  std::chrono::milliseconds timeout{60'000};  ///< longest wait of one rank for another, where there is no connection
  /// A file for what ranks did last, written when a run fails; the error names it. "": none.
  std::string flight_record;
  /// Called with the error if a rank has failed and a rank of this process hangs: a thread cannot be ended, and run()
  /// does not return. For who would rather end the process.
  std::function<void(const std::string& message)> abandoned;
  /// Bytes that this process may hold for all of its ranks: buffers, outputs (those of earlier runs that somebody still
  /// has, too), and weights but where they stay mapped from files. A run that needs more is a user error that names its
  /// largest tensors, before they are allocated. 0: what the machine has, or the control group that the process is in.
  size_t memory_limit = 0;
  /// A session on the same mesh and connection whose states that change are this one's, too: what one steps or sets,
  /// the other sees. Runs of the two take turns. The programs store these alike (CompileOptions::sharing). Null: the
  /// session has its own.
  const class Session* share_states = nullptr;
  bool checkpoints = false;  ///< peak and limit count the copies of states that Checkpoints writes (training.h)
  bool overlap = true;       ///< run what does not depend on a communication while it is under way
  /// Communications that a rank starts before it needs their results, at most. A stored state (Plan::storage) is so
  /// fetched that many uses ahead; its gathered form is let go of after the use.
  int prefetch = 4;
  bool profile = false;   ///< note the times of each operator; see profile.h
  bool keep_all = false;  ///< keep every intermediate tensor of a run, for comparisons
};

struct Profile;

class Checkpoints;

/// A program loaded on its ranks: threads of this process, or the processes of a connection. run() may be called from
/// several threads where there is no connection; calls queue.
class Session {
 public:
  explicit Session(const Program& program, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Whole inputs to whole outputs; then all states step on all ranks, or, if a rank fails, on none. (If it fails while
  /// ranks write over states, set_states() has to give all of them values before the next run.) Throws a user error for
  /// an input that is missing, unknown, or of the wrong dtype or shape, and a running error if a rank fails; the
  /// session can be used again after both. With a connection, all processes give the same inputs; outputs are in that
  /// of rank 0, and there are none in the others; and a rank that fails ends the connection.
  Tensors run(const Tensors& inputs);

  /// The states that change (Model::with_states), whole, by name, as the last run left them. With a connection, all
  /// processes call it; the states are in that of rank 0, and there are none in the others.
  Tensors states();
  /// The same of these states only; the others are not gathered. Throws a user error for a name that no such state has.
  Tensors states(const std::vector<std::string>& names);
  /// Gives states that change these whole values; with a connection, all processes give the same. Throws a user error
  /// for a name that no such state has, or another dtype or shape; no state has changed then.
  void set_states(const Tensors& states);

  /// Bytes of each rank at its peak, weights included, for inputs of these shapes. Loads what a run would load.
  std::vector<int64_t> peak_bytes(const Tensors& inputs);
  /// Bytes that this process needs for all of its ranks, which is what SessionOptions::memory_limit counts, at the peak
  /// of the runs so far and of those that peak_bytes() was asked for. Weights that ranks share count once; weights that
  /// stay mapped from files do not count.
  int64_t process_bytes() const;
  int threads_per_rank() const;

  /// With SessionOptions::profile: where the time of the last run went, on all ranks. With a connection,
  /// all processes call it.
  Profile profile() const;

  struct Kept {
    std::string name;
    Tensor value;
  };
  /// With keep_all: the intermediate tensors of the last run, in running order; whole where the outputs are.
  std::vector<Kept> kept();

 private:
  friend class Checkpoints;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs any model over a mesh: also one whose shapes depend on the elements of its inputs (Model::value_inputs), that
/// must be compiled for certain sizes (Model::size_symbols), or whose shapes depend on what it computes (the count of
/// NonZero's results, a computed k of TopK, what an iteration of a Loop appends). Such a model runs in parts, one after
/// the other, each compiled for the values that decide its shapes: on its first run with these, and again once eight
/// other sets of values came after. What a part hands to the next is whole, in memory of the host.
class ModelSession {
 public:
  /// Compiles what can be compiled before a run. Throws as compile() and Session do; and a user error for a model that
  /// runs in parts where it has states that step, or `session` has a connection.
  explicit ModelSession(const Model& model, const Mesh& mesh = {}, const Plan& plan = {},
                        const CompileOptions& options = {}, const SessionOptions& session = {});
  ~ModelSession();
  ModelSession(ModelSession&&) noexcept;
  ModelSession& operator=(ModelSession&&) noexcept;

  /// As Session::run.
  Tensors run(const Tensors& inputs);
  /// The programs that the last run ran, in order: one for each iteration, where a loop's body is a part.
  std::vector<Program> programs() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v1
}  // namespace tessera
