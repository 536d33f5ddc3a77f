#include "tessera/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "tessera/check.h"
#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/files.h"
#include "tessera/memory.h"
#include "tessera/pipeline.h"

namespace tessera::cli {
namespace {

constexpr const char* kMachine = "machine";  // the stage of --dump after all of compilation

[[noreturn]] void mistake(std::string_view stage, const std::string& message) {
  throw Error(ErrorKind::user, stage, message);
}

std::string read_text(std::string_view stage, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) mistake(stage, path + " cannot be read; name a JSON file");
  return text.str();
}

int64_t parse_size(std::string_view text, std::string_view item) {
  int64_t size = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size())
    mistake("shapes", "'" + std::string(item) + "' is not a size; write SYMBOL=NUMBER, as batch=8,sequence=128");
  return size;
}

}  // namespace

std::string sizes_text(const SymbolSizes& sizes) {
  std::vector<std::string> items;
  for (const auto& [symbol, size] : sizes) items.push_back(symbol + "=" + std::to_string(size));
  return joined(items, ",");
}

SymbolSizes parse_shapes(std::string_view text) {
  SymbolSizes sizes;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    size_t equals = item.rfind('=');
    std::string_view number = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    int64_t size = parse_size(number, item);
    if (!sizes.emplace(item.substr(0, equals), size).second)
      mistake("shapes", "'" + std::string(item.substr(0, equals)) + "' is given twice; give it once");
  }
  return sizes;
}

CLI::Validator number_in(const Bounds& bounds) {
  return {
      [bounds](const std::string& text) { return bounds.parse(text) ? "" : "'" + text + "' must be " + bounds.text(); },
      ""};
}

CLI::Validator above_zero() {
  return number_in(Bounds::above(0));
}

CLI::Validator seed_number() {
  return {[](const std::string& text) {
            uint64_t seed = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
            const bool is_seed = error == std::errc() && end == text.data() + text.size();
            return is_seed ? "" : "'" + text + "' must be a whole number from 0 to 2^64 - 1";
          },
          ""};
}

CLI::Validator zero_or_more() {
  return number_in(Bounds::at_least(0));
}

size_t parse_memory(std::string_view text) {
  const std::optional<size_t> bytes = parse_bytes(text);
  if (!bytes) mistake("memory", "'" + std::string(text) + "' is not a size of memory; write bytes, or 512M, or 4G");
  return *bytes;
}

namespace {

int64_t parse_bucket(const std::string& text) {
  const std::optional<size_t> bytes = text == "0" ? 0 : parse_bytes(text);
  if (!bytes)
    mistake("buckets", "'" + text + "' is not a size of a bucket; write bytes, or 64K, or 1M; or 0, for none");
  return static_cast<int64_t>(*bytes);
}

int64_t parse_reshard(const std::string& text) {
  const std::optional<size_t> bytes = text == "0" ? 0 : parse_bytes(text);
  if (!bytes) mistake("reshard", "'" + text + "' is not a size of a change of layout; write bytes, or 64K, or 1M");
  return static_cast<int64_t>(*bytes);
}

}  // namespace

std::string schedules_help() {
  std::vector<std::string> names;
  for (const PipelineScheduleInfo& each : pipeline_schedules()) names.push_back(each.name);
  return joined(names) + ", auto (the fastest of these), or a table: a CSV file as torch.distributed.pipelining has";
}

std::vector<std::string> table_of_schedule(const std::string& schedule) {
  return is_pipeline_schedule(schedule) ? std::vector<std::string>() : std::vector{schedule};
}

void MemoryOption::declare(CLI::App& app, const char* help) {
  under(app, Heading::memory);
  app.add_option("--memory-limit", text, help)->type_name("BYTES");
}

void PlanOptions::declare(CLI::App& app) {
  under(app, Heading::mesh);
  app.add_option("--mesh", mesh_text,
                 "named axes of ranks with their sizes, e.g. dp=2,tp=4; by default, one rank. tessera shard also takes "
                 "open sizes, e.g. tp=?")
      ->type_name("AXES");
  app.add_option("--preset", preset,
                 "presets joined by '+', e.g. dp+megatron or megatron:x, or none; by default, those that the axes' "
                 "names imply. tessera info lists them");
  repeatable(app.add_option("--annotate", annotations,
                            "NAME=[d,...]: the layout of the tensors of this name ('*' matches anything), one d per "
                            "dimension: '-' whole; '?' open; an axis 'tp'; axes '{dp,tp}', major to minor; or parts "
                            "'3*192{tp}'. A suffix '?' opens a dimension; '...' stands for any number of whole ones; "
                            "partial(sum:tp) may follow. The first match wins"));
  repeatable(app.add_option("--place", places,
                            "NAME=AXIS:INDEX: run these nodes only on the ranks at this index of the axis, and store "
                            "their weights only there, e.g. h.1.*=pp:1. NAME is that of a node, of a tensor that it "
                            "makes, or of the PyTorch module from which it comes ('*' matches anything). The first "
                            "match wins"));
  app.add_option("--plan", plan_path,
                 "JSON file with mesh, presets, annotations, places, states, store, keep_gathered, recompute, "
                 "ring_attention, overlap, partial_sums, bucket_bytes, micro_batches, pipeline, stages, "
                 "max_reshard_bytes, shapes, "
                 "dtype; options override it");
  app.add_option("--configuration", configuration,
                 "follow the model's device annotations (IR version 11) for this configuration of its file, instead of "
                 "a mesh; without a mesh, those for its only configuration are followed")
      ->type_name("NAME");
  app.add_option("--topology", topology_path,
                 "JSON file that names the links of the mesh's axes, as tessera bench comm writes it");
  takes_one_of(app.add_option("--ring-attention", ring_attention,
                              "whether keys and values go around a ring of ranks instead of being gathered, where "
                              "queries are split; auto: where that takes less time on the links of --topology"),
               {"auto", "always", "never"});
  overlap.declare(app);
  app.add_option("--micro-batches", micro_batches,
                 "the number of equal parts of a batch that go through the model one after the other")
      ->check(above_zero());
  app.add_option("--pipeline", pipeline,
                 "the schedule by which stages on the axis pp compute micro-batches: " + schedules_help());
  app.add_option("--stages", stages,
                 "how the model is cut into stages: auto (the slowest is as fast as possible), or the number of blocks "
                 "in each, e.g. 7,9,9,7")
      ->type_name("BLOCKS");
  takes_one_of(app.add_option("--partial-sums", partial_sums,
                              "in which type ranks add up their parts of products of 16-bit operands: float32, or that "
                              "of the operands, which moves half the bytes and rounds each part [default: float32]"),
               {"float32", "operands"});
  app.add_option("--bucket-bytes", bucket_bytes,
                 "start small collectives of one kind and group as one, up to this many bytes (64K, 1M) together; 0: "
                 "each alone. By default, what the topology's links carry in four times their latency; without a "
                 "topology, 256K")
      ->type_name("BYTES");
  app.add_option("--max-reshard-bytes", max_reshard_bytes,
                 "refuse a plan in which a change of layout makes a rank receive more than this many bytes (64K, 1M), "
                 "and name the tensor, what needs it, and both layouts")
      ->type_name("BYTES");
  repeatable(app.add_option("--state", states,
                            "STATE=NEXT: the initializer STATE takes the value of the output NEXT after each run. In "
                            "'*=next.*', '*' is the same text on both sides, and initializers without a partner stay "
                            "as they are. STATE alone may be changed by --load-states"));
  repeatable(app.add_option("--store", storage,
                            "NAME=[d,...]: how parameters and other states are stored between runs, written as in "
                            "--annotate: '*=[dp,...]' splits all along their first dimension (FSDP, ZeRO-3) and "
                            "gathers each for its use. The first match wins"));
  repeatable(
      app.add_option("--keep-gathered", keep_gathered,
                     "parameters that --store splits, but that stay gathered from their first use in a step to "
                     "their last, e.g. 'head*,embed*'; '*': all (FSDP without resharding after the forward pass)"))
      ->delimiter(',')
      ->type_name("NAMES");
  under(app, Heading::memory);
  app.add_option("--recompute", recompute,
                 "what a training step's backward pass computes again instead of holding it: none; selective: all but "
                 "products with parameters, convolutions and attention; full: all but the tensors between blocks; "
                 "auto: the least work that fits into --memory-limit; or names of tensors, e.g. 'h.*.gelu,h.*.ln'");
  under(app, Heading::model);
  app.add_option("--shapes", shapes, "sizes of symbolic dimensions, e.g. batch=8,sequence=128")->type_name("SIZES");
  app.add_option("--dtype", dtype,
                 "the type in which a float32 model computes: float32 (fp32), bfloat16 (bf16) or float16 (fp16)")
      ->type_name("TYPE");
  declare_paths(
      app,
      {{"--topology", PathUse::reads}, {"--plan", PathUse::reads}, {"--pipeline", PathUse::reads, table_of_schedule}});
}

void OverlapOption::declare(CLI::App& app) {
  takes_one_of(app.add_option("--overlap", text,
                              "whether ranks compute while communications are under way. auto (the default): all that "
                              "does not depend on them; and collectives beside products go around rings in blocks "
                              "where --machine or --cluster predicts a shorter step. off: wait for each communication "
                              "where it starts. always: every such collective in a ring. report: auto, and bench, "
                              "shard, simulate and train say what is hidden behind what, and why collectives stay "
                              "whole"),
               {"off", "auto", "always", "report"});
}

void PlanOptions::declare_own(CLI::App& app) {
  under(app, Heading::model);
  repeatable(app.add_option("--own", own,
                            "for models that arrive split: inputs and outputs that each rank has of its own. With x,y, "
                            "rank 3 takes the array x@3 and returns y@3"))
      ->delimiter(',')
      ->type_name("NAMES");
}

Plan PlanOptions::plan() const {
  Plan plan;
  plan.presets = preset;
  for (const std::string& annotation : annotations) plan.annotations.push_back({annotation, "annotation"});
  for (const std::string& place : places) plan.places.push_back({place, "place"});
  plan.states = states;
  for (const std::string& store : storage) plan.storage.push_back({store, "store"});
  plan.keep_gathered = keep_gathered;
  plan.recompute = recompute;
  plan.ring_attention = ring_attention;
  plan.overlap = overlap.plan();
  plan.micro_batches = micro_batches;
  plan.pipeline = pipeline;
  plan.stages = stages;
  plan.partial_sums = partial_sums;
  if (!bucket_bytes.empty()) plan.bucket_bytes = parse_bucket(bucket_bytes);
  if (!max_reshard_bytes.empty()) plan.max_reshard_bytes = parse_reshard(max_reshard_bytes);
  plan.shapes = parse_shapes(shapes);
  plan.mesh = mesh_text;
  if (!dtype.empty()) plan.dtype = Plan::dtype_named(dtype, "--dtype");
  return plan_path.empty() ? plan : plan.over(Plan::from_json(read_text("plan", plan_path), plan_path));
}

Plan PlanOptions::plan(Model& model, const Console& console, bool trains) const {
  const Plan own = plan();
  Plan carried = model.plan();
  const std::vector<std::string> names = model.configurations();
  if (!configuration.empty() && !own.mesh.empty())
    mistake("devices", "--configuration says on which devices the model runs, and so does the mesh " + own.mesh +
                           "; leave out one of the two");
  const bool placed = !own.mesh.empty() || !carried.mesh.empty();
  if (configuration.empty() && names.empty() && !placed) refuse_wrong_annotations(model);
  if (configuration.empty() && (names.empty() || placed)) return own.over(carried);
  if (configuration.empty() && names.size() > 1)
    mistake("devices", model.path().string() + " has several device configurations, " + joined(names) +
                           "; name one with --configuration, or give a --mesh to follow none");
  const std::string& name = configuration.empty() ? names.front() : configuration;
  Plan before = own;
  if (trains) before.states.emplace_back("*");
  const ConfiguredModel followed = model.configured(name, before);
  constexpr size_t kMostNamed = 16;
  std::vector<std::string> devices;
  bool in_order = true;
  for (int64_t device : followed.devices) {
    in_order = in_order && device == static_cast<int64_t>(devices.size());
    devices.push_back(std::to_string(device));
  }
  if (devices.size() > kMostNamed) devices.resize(kMostNamed), devices.emplace_back("…");
  console.note("note: device configuration '" + name + "', mesh " +
               cli::mesh_text(followed.plan.mesh.empty() ? Mesh() : Mesh::parse(followed.plan.mesh)) +
               (in_order ? "" : "; its ranks are the devices " + joined(devices)));
  for (const std::string& warning : followed.warnings) console.advise(warning);
  model = followed.model;
  carried.mesh.clear();
  return own.over(followed.plan).over(carried);
}

Mesh PlanOptions::mesh(const Plan& plan) const {
  return plan.mesh.empty() ? Mesh() : Mesh::parse(plan.mesh);
}

Topology PlanOptions::topology() const {
  return topology_path.empty() ? Topology() : Topology::from_json(read_text("topology", topology_path), topology_path);
}

void PlanOptions::add_sizes(Plan& plan, const std::vector<TensorInfo>& ports, const Tensors& inputs) const {
  const SymbolSizes stated = parse_shapes(shapes);
  for (const auto& [symbol, size] : sizes_of(ports, inputs)) {
    if (const auto other = stated.find(symbol); other != stated.end() && other->second != size)
      mistake("shapes", "--shapes says " + symbol + "=" + std::to_string(other->second) +
                            ", but the inputs' shapes say " + symbol + "=" + std::to_string(size) + "; leave " +
                            symbol + " out of --shapes");
    plan.shapes.emplace(symbol, size);
  }
}

bool PlanOptions::any() const {
  return !mesh_text.empty() || !configuration.empty() || !topology_path.empty() || !preset.empty() ||
         !annotations.empty() || !places.empty() || !states.empty() || !storage.empty() || !keep_gathered.empty() ||
         !recompute.empty() || !ring_attention.empty() || !partial_sums.empty() || micro_batches > 0 ||
         !pipeline.empty() || !stages.empty() || !bucket_bytes.empty() || !max_reshard_bytes.empty() ||
         !plan_path.empty() || !dtype.empty() || !shapes.empty() || !own.empty();
}

void PlanOptions::refuse_for_written(const std::string& path) const {
  if (any())
    throw Error(ErrorKind::user, "run",
                path +
                    " is a written program, whose mesh and layouts are fixed and whose sizes are its inputs'; leave "
                    "out --mesh, --configuration, --topology, --preset, --annotate, --place, --state, --store, "
                    "--keep-gathered, "
                    "--recompute, --ring-attention, --partial-sums, --micro-batches, --pipeline, --stages, "
                    "--bucket-bytes, --max-reshard-bytes, --plan, "
                    "--shapes, --own "
                    "and --dtype, or run the "
                    "model itself");
}

void PlanOptions::refuse_for_split(const std::string& path) const {
  if (!configuration.empty() || !topology_path.empty() || !preset.empty() || !annotations.empty() || !places.empty() ||
      !states.empty() || !storage.empty() || !keep_gathered.empty() || !recompute.empty() || !ring_attention.empty() ||
      !partial_sums.empty() || micro_batches > 0 || !pipeline.empty() || !stages.empty() || !bucket_bytes.empty() ||
      !max_reshard_bytes.empty() || !plan_path.empty() || !dtype.empty())
    mistake("join",
            path +
                " is split already, so that its layouts are fixed; leave out --configuration, --topology, --preset, "
                "--annotate, --place, --state, --store, --keep-gathered, --recompute, --ring-attention, "
                "--partial-sums, --micro-batches, --pipeline, --stages, --bucket-bytes, --max-reshard-bytes, --plan "
                "and --dtype");
}

void FormOptions::declare(CLI::App& app) {
  under(app, Heading::program);
  takes_one_of(
      app.add_option("--form", words_["form"],
                     "mpmd: one model per class of ranks with equal programs, with their shards; spmd: one model "
                     "for all ranks; parallel-for: a model with one ParallelFor"),
      {"mpmd", "spmd", "parallel-for"});
  takes_one_of(app.add_option("--dialect", words_["dialect"],
                              "the operators of collectives: those of tessera.comm; ONNX Runtime's AllReduce, "
                              "AllGather and AllToAll (ort); or TensorRT's DistCollective; see docs/dialects.md"),
               {"tessera", "ort", "tensorrt"});
  takes_one_of(app.add_option("--lower", words_["lower"],
                              "write each collective as a node of tessera.comm, or as a function over Send and Recv "
                              "(primitives)"),
               {"collectives", "primitives"});
  takes_one_of(app.add_option("--order", words_["order"],
                              "what orders communication: a token that passes through it, or the nodes' positions"),
               {"tokens", "position"});
  takes_one_of(app.add_option("--rank-id", words_["rank_id"],
                              "how a model learns its rank: from the input tessera.rank; from RankId and AxisIndex "
                              "nodes (op); or as a constant, with one model per rank"),
               {"input", "op", "constant"});
  takes_one_of(app.add_option("--rank-type", words_["rank_type"],
                              "the type of a rank in a model: an int64 scalar, or a handle of an opaque type"),
               {"integer", "opaque"});
}

WriteOptions FormOptions::options() const {
  std::map<std::string, std::string> given = words_;
  std::erase_if(given, [](const auto& word) { return word.second.empty(); });
  return WriteOptions::from_words(given);
}

void FormOptions::refuse_for_open(const std::string& mesh) const {
  std::vector<std::string> given;
  for (const auto& [name, word] : words_) {
    if (word.empty()) continue;
    given.push_back("--" + name);
    std::replace(given.back().begin(), given.back().end(), '_', '-');
  }
  if (!given.empty())
    mistake("shard", "the mesh " + mesh + " is open, so that the model is not split yet and its program has no form; " +
                         "leave out " + joined(given) + " until all sizes are given");
}

void DumpOptions::declare(CLI::App& app) {
  under(app, Heading::output);
  repeatable(app.add_option("--dump", stages_,
                            "print the text form after this stage; machine: what a rank runs; list: the stages' names"))
      ->type_name("STAGE");
  app.add_option("--rank", rank_, "the rank whose machine program --dump=machine prints")
      ->check(zero_or_more())
      ->capture_default_str();
}

bool DumpOptions::list(const Console& console) const {
  if (std::find(stages_.begin(), stages_.end(), "list") == stages_.end()) return false;
  std::vector<std::string> known = stages();
  known.emplace_back(kMachine);
  if (console.json) console.emit({{"stages", known}});
  for (const std::string& stage : known) console.say(stage);
  return true;
}

void DumpOptions::check() const {
  auto known = stages();
  known.emplace_back(kMachine);
  for (const std::string& stage : stages_)
    if (std::find(known.begin(), known.end(), stage) == known.end())
      mistake("dump", "there is no stage '" + stage + "'; the stages are: " + joined(known));
}

void DumpOptions::refuse_for_written(const std::string& path) const {
  if (std::any_of(stages_.begin(), stages_.end(), [](const std::string& stage) { return stage != kMachine; }))
    mistake("dump", path + " is a written program, which has been through all stages; leave out --dump, or run the " +
                        "model itself");
}

StageObserver DumpOptions::observer(const Console& console) {
  if (stages_.empty() || stages_ == std::vector<std::string>{kMachine}) return nullptr;
  return [this, &console](std::string_view stage, const std::function<std::string()>& text) {
    show(console, std::string(stage), "after " + std::string(stage), text);
  };
}

void DumpOptions::machine(const Console& console, const Program& program, const SymbolSizes& sizes,
                          const SessionOptions& options) {
  if (!console.speaks()) return;
  show(console, kMachine, "the machine program", [&] { return program.machine(rank_, sizes, options); });
}

void DumpOptions::show(const Console& console, const std::string& stage, const std::string& title,
                       const std::function<std::string()>& text) {
  if (std::find(stages_.begin(), stages_.end(), stage) == stages_.end()) return;
  if (console.json)
    texts_[stage] = text();
  else
    std::printf("# %s\n%s\n", title.c_str(), text().c_str());
}

void DumpOptions::add_to(Json& object) const {
  for (const auto& [stage, text] : texts_) object["dump"][stage] = text;
}

void InputOptions::declare(CLI::App& app) {
  under(app, Heading::model);
  app.add_option("--inputs", path,
                 "a .npz file with one array per input, or a folder of input_N.pb; by default, random arrays");
  app.add_option("--seed", seed, "the seed of random inputs")->check(seed_number())->capture_default_str();
  declare_paths(app, {{"--inputs", PathUse::reads}});
}

Tensors InputOptions::given(const std::vector<TensorInfo>& ports) const {
  if (path.empty()) return {};
  std::vector<std::string> wanted;
  for (const TensorInfo& port : ports) wanted.push_back(port.name + " " + type_text(port));
  if (!read_ || read_->first != wanted) read_ = {wanted, read_tensors(path, "input", ports, memory_limit)};
  return read_->second;
}

Tensors InputOptions::at_step(const Tensors& arrays, const std::vector<TensorInfo>& ports, int step) const {
  if (steps == 0) return arrays;
  Tensors sliced = arrays;
  for (const TensorInfo& port : ports) {
    auto array = sliced.find(port.name);
    if (array == sliced.end() || array->second.dims.size() != port.shape.size() + 1) continue;
    Tensor& tensor = array->second;
    if (tensor.dims.front() != steps)
      mistake("inputs", "input '" + port.name + "' has arrays for " + std::to_string(tensor.dims.front()) +
                            " steps, but --steps is " + std::to_string(steps) + "; give as many of both");
    if (bits_of(tensor.dtype) % 8 != 0 || tensor.dtype == DType::string)
      mistake("inputs", "input '" + port.name + "' has elements of " + std::to_string(bits_of(tensor.dtype)) +
                            " bits, which cannot be cut into steps; give one array for all steps");
    tensor.dims.erase(tensor.dims.begin());
    tensor.bytes /= static_cast<size_t>(steps);
    if (tensor.bytes > 0) tensor.data += static_cast<size_t>(step) * tensor.bytes;
  }
  return sliced;
}

Tensors InputOptions::random(const Model& model, const SymbolSizes& sizes, const Console& console) const {
  Progress progress(console, "making inputs");
  Tensors made = random_inputs(model, sizes, seed, memory_limit);
  progress.end();
  console.note("note: random inputs (--seed " + std::to_string(seed) + "); give your own with --inputs");
  return made;
}

Tensors InputOptions::given_for_written(const Program& program) const {
  if (from_file()) return given(program.inputs());
  std::vector<std::string> names;
  for (const TensorInfo& port : program.inputs()) names.push_back(port.name + " " + type_text(port));
  throw Error(ErrorKind::user, "inputs", "a written program has no random inputs; give --inputs with " + joined(names));
}

void declare_device(CLI::App& app, std::string& device) {
  app.add_option("--device", device,
                 "what ranks compute on: cpu; or simulated, a CPU that behaves like an accelerator, for tests. "
                 "simulated:512M has this much memory; simulated:2x512M is a machine with two of these")
      ->check([](const std::string& text) {
        const std::vector<std::string> known = devices();
        const std::string name = text.substr(0, text.find(':'));
        const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
        return is_known ? std::string() : "'" + name + "' must be one of " + joined(known);
      })
      ->type_name("DEVICE")
      ->capture_default_str();
}

void RunOptions::declare(CLI::App& app, const OverlapOption& overlaps) {
  overlap = &overlaps;
  under(app, Heading::ranks);
  app.add_option("--threads", threads, "threads of each rank; 0: the cores divided among the ranks")
      ->check(number_in(Bounds::between(0, 1024)))
      ->capture_default_str();
  app.add_option("--prefetch", prefetch,
                 "the most communications that a rank starts before it needs their results; states that --store splits "
                 "are gathered this many uses ahead")
      ->check(number_in(Bounds::between(1, 1024)))
      ->capture_default_str();
  declare_device(app, device);
  launch.declare(app);
  memory.declare(
      app,
      "bytes, e.g. 512M or 4G, that each process may hold for all of its ranks; by default, the memory of the "
      "machine or container");
}

SessionOptions RunOptions::session(const Console& console) const {
  SessionOptions options;
  options.threads_per_rank = threads;
  options.overlap = overlaps();
  options.prefetch = prefetch;
  options.device = device;
  options.memory_limit = memory.bytes();
  options.timeout = launch.waits();
  options.connection = console.connection;
  options.flight_record = launch.flight_record_of(console);
  options.abandoned = [&console](const std::string& message) {
    console.report(kFailed, message);
    std::fflush(stdout);
    remove_unfinished();
    std::_Exit(kFailed);
  };
  return options;
}

RunSettings RunOptions::planned(const Console& console, const Mesh& mesh, bool runs) const {
  RunSettings settings;
  settings.threads_per_rank = runs || threads > 0 ? threads : 1;
  if (console.connection) settings.machine_ranks = console.connection->launch().local_size;
  settings.overlap = overlaps();
  settings.prefetch = prefetch;
  settings.process_ranks = static_cast<int>(ranks_of_process(console, mesh));
  return settings;
}

int64_t RunOptions::ranks_of_process(const Console& console, const Mesh& mesh) const {
  const bool are_threads = !console.connection && launch.spawn == 0 &&
                           (launch.engine == "auto" || launch.engine == "threads") && mesh.size() <= kMostRankThreads;
  return are_threads ? mesh.size() : 1;
}

}  // namespace tessera::cli
