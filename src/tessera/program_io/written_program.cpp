#include "tessera/program_io/written_program.h"

#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/foreign.h"
#include "tessera/dialect/tokens.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/text_header.h"
#include "tessera/onnx/export.h"
#include "tessera/ops/op.h"
#include "tessera/program_io/init_model.h"
#include "tessera/program_io/lowering.h"
#include "tessera/program_io/manifest.h"
#include "tessera/program_io/parallel_for.h"
#include "tessera/program_io/rank_classes.h"
#include "tessera/program_io/rank_model.h"
#include "tessera/program_io/weights_file.h"
#include "tessera/rewrite/passes.h"
#include "tessera/spmd/partition/init.h"
#include "tessera/spmd/partition/specialize.h"
#include "tessera/spmd/partition/whole.h"

namespace tessera::program_io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeightsFolder = "weights";

/// The file name of a model: "rank_0.onnx" for a class of ranks, "model.onnx" for all.
constexpr std::string_view kInit = "init", kOneForAll = "model", kOfRank = "rank", kModelEnding = ".onnx";

std::string model_file(std::string_view what, std::optional<int> rank) {
  return rank ? fmt::format("{}_{}{}", what, *rank, kModelEnding) : fmt::format("{}{}", what, kModelEnding);
}

bool is_model_file(const std::string& name) {
  const auto is_of_rank = [&](std::string_view what) {
    return name.starts_with(fmt::format("{}_", what)) && name.ends_with(kModelEnding);
  };
  return name == model_file(kInit, std::nullopt) || name == model_file(kOneForAll, std::nullopt) || is_of_rank(kInit) ||
         is_of_rank(kOfRank);
}

/// A written program is replaced only by another one, and only if its folder holds nothing else.
std::optional<std::string> objection_to_replacing(const fs::path& folder) {
  if (!is_written_program(folder)) return fmt::format("contains other files and no {}", kManifestFile);
  std::set<fs::path> own = {kManifestFile};
  try {
    const Manifest manifest =
        Manifest::from_json(MappedFile::open(folder / kManifestFile, "write")->view(), folder / kManifestFile);
    for (const auto* files : {&manifest.models, &manifest.weights})
      for (const Manifest::RankFile& file : *files) {
        if (file.init) own.insert(file.init->file);
        for (fs::path path = file.stamp.file; !path.empty(); path = path.parent_path()) own.insert(path);
      }
  } catch (const Error&) {
    return fmt::format("contains a {} that is not of a written program of this version", kManifestFile);
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (fs::path path = entry.path().lexically_relative(folder); !own.contains(path))
      return fmt::format("contains '{}', which is not a part of the program there", path.string());
  return std::nullopt;
}

// Only Tessera's dialect has operators that return the rank.
WriteOptions settled(WriteOptions options) {
  if (options.dialect == Dialect::tessera) return options;
  if (options.lower == Lower::primitives)
    fail("write", "other engines have no Send and Recv; leave out `lower=primitives`, or `dialect`");
  if (options.rank_type == RankType::opaque)
    fail("write",
         "models for other engines contain their rank as a constant, which a handle cannot be; leave out "
         "`rank_type=opaque`, or `dialect`");
  options.order = Order::position;
  options.rank_id = RankIdentity::constant;
  return options;
}

// Replaces Tessera's own operators by others, whose results take over the names. Meanwhile, places and outputs are kept
// by name, since new values may have the addresses of old ones.
void spell_out(spmd::Program& program) {
  std::map<std::string, spmd::Placement> placed;
  for (const auto& [value, placement] : program.placements) placed.emplace(value->name, placement);
  std::vector<std::string> outputs;
  for (const spmd::Port& port : program.outputs) outputs.push_back(port.value ? port.value->name : "");
  rewrite::spell_out(*program.graph);
  program.placements.clear();
  for (const auto& value : program.graph->values())
    if (auto known = placed.find(value->name); known != placed.end())
      program.placements.emplace(value.get(), known->second);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (program.outputs[i].value) program.outputs[i].value = program.graph->find(outputs[i]);
}

// The program as one graph, with operators that the reader knows.
spmd::Program readable(const spmd::Program& program, const WriteOptions& options) {
  spmd::Program one = spmd::in_one_graph(program);
  if (for_others(options)) spell_out(one);
  return one;
}

class ProgramWriter {
 public:
  ProgramWriter(const spmd::Program& program, const std::string& source, const fs::path& folder,
                const WriteOptions& options)
      : program_(readable(program, options)),
        options_(settled(options)),
        placed_(!spmd::placed_axes(program_).empty()),
        names_(program_),
        folder_(folder, objection_to_replacing) {
    manifest_.tessera = TESSERA_VERSION;
    manifest_.source = source;
    manifest_.mesh = program.mesh;
    manifest_.form = options_;
    manifest_.init = spmd::derived_states(program);
    for (const auto& [symbol, value] : program.hints) manifest_.hints[names_.rename(symbol)] = value;
    for (const spmd::ExtentEquality& equality : program.equal_extents)
      manifest_.equal_extents.push_back(
          {names_.rename(equality.a), names_.rename(equality.b), equality.node, equality.broadcasts});
  }

  void run() {
    describe_ports();
    write_weights();
    write_models();
    manifest_.meanings = proved_meanings(folder_.temporary(), manifest_);
    write_file(folder_.temporary() / kManifestFile, manifest_.to_json());
    folder_.commit();
  }

 private:
  void describe(const Value* value, Manifest::Tensor& tensor) const {
    const spmd::Placement& placement = program_.placement(value);
    tensor.name = placement.name;
    tensor.value = value->name;
    tensor.global = {placement.global.dtype, names_.rename(*placement.global.shape)};
    tensor.sharding = names_.rename(placement.sharding);
  }

  void describe_ports() {
    for (const spmd::Port& port : program_.inputs) describe(port.value, manifest_.inputs.emplace_back());
    for (const spmd::Port& port : program_.outputs) {
      describe(port.value, manifest_.outputs.emplace_back());
      manifest_.outputs.back().name = port.name;
    }
    for (const auto& value : program_.graph->values()) {
      if (value->kind != ValueKind::state) continue;
      Manifest::State& state = manifest_.states.emplace_back();
      describe(value.get(), state);
      if (value->next) state.next = value->next->name;
      state.changes = value->changing;
      state.origin = program_.placement(value.get()).origin;
    }
  }

  std::vector<StoredShard> shards_of(int rank) const {
    return lay_out_shards(program_, program_.mesh.coordinates(rank));
  }

  static std::vector<Manifest::RankFile> files_of(const RankClasses& classes) {
    std::vector<Manifest::RankFile> files(classes.count());
    for (size_t rank = 0; rank < classes.of_rank.size(); ++rank)
      files[classes.of_rank[rank]].ranks.push_back(static_cast<int>(rank));
    return files;
  }

  void write_weights() {
    if (manifest_.states.empty()) return;
    fs::create_directory(folder_.temporary() / kWeightsFolder);
    manifest_.weights = files_of(weights_ = shard_classes(program_));
    for (size_t k = 0; k < weights_.count(); ++k) {
      Manifest::RankFile& file = manifest_.weights[k];
      const std::vector<StoredShard> shards = shards_of(weights_.first_rank[k]);
      file.stamp = write_shards(program_, shards, folder_.temporary(), fmt::format("{}/{}.bin", kWeightsFolder, k));
      const auto written = MappedFile::open(folder_.temporary() / file.stamp.file, "write");
      for (const StoredShard& shard : shards)
        file.hashes[shard.state->name] =
            hash_of_shard({shard.state->dtype(), shard.dims, written, written->data() + shard.offset, shard.bytes});
    }
  }

  void write_models() {
    const bool constant = options_.rank_id == RankIdentity::constant;
    if (options_.form != Form::mpmd) {  // no axis index is bound; ranks differ in what they compute from indices
      std::vector<std::string> all;
      std::vector<int> ranks(static_cast<size_t>(program_.mesh.size()));
      std::iota(ranks.begin(), ranks.end(), 0);
      for (const MeshAxis& axis : program_.mesh.axes()) all.push_back(axis.name);
      write_model(model_of(0, all), ranks);
      return;
    }
    auto unbound = constant ? std::vector<std::string>{} : unbound_axes(program_);
    RankClasses classes = model_classes(program_, unbound);
    for (const Manifest::RankFile& alike : files_of(classes)) {
      WrittenModel first = model_of(alike.ranks[0], unbound);
      if (!constant || !first.uses_rank) {
        write_model(std::move(first), alike.ranks);
        continue;
      }
      for (int rank : alike.ranks) write_model(model_of(rank, unbound), {rank});
    }
  }

  WrittenModel model_of(int rank, const std::vector<std::string>& unbound) const {
    const std::vector<int64_t> coordinates = program_.mesh.coordinates(rank);
    std::optional<spmd::Program> part;
    if (placed_ && options_.form == Form::mpmd) part = spmd::specialize(program_, coordinates);
    const spmd::Program& own = part ? *part : program_;
    WrittenModel written = rank_model(own, coordinates, unbound, lay_out_shards(own, coordinates), names_, options_);
    if (options_.dialect != Dialect::tessera) {
      const auto engine =
          options_.dialect == Dialect::ort ? dialect::ForeignEngine::ort : dialect::ForeignEngine::tensorrt;
      written.uses_rank |= dialect::to_foreign(written.model, program_.mesh, rank, engine);
    } else if (options_.order == Order::tokens) {
      written.ordered = dialect::thread_tokens(written.model);
    } else {
      dialect::state_positions(written.model);
    }
    return written;
  }

  void write_model(WrittenModel written, std::vector<int> ranks) {
    OnnxModel& model = written.model;
    if (written.ordered) manifest_.token = dialect::kLastToken;
    text::HeaderExtras header;
    header.producer_name = "tessera";
    header.producer_version = TESSERA_VERSION;
    model.extra = text::serialize_extras(header);
    ExportOptions options;
    options.value_info = true;
    const int rank = ranks[0];
    for (const StoredShard& shard : shards_of(rank))
      options.stored[shard.state->name] = {manifest_.weights[weights_.of_rank[rank]].stamp.file, shard.offset};
    const bool one_for_all = options_.form != Form::mpmd;
    const std::optional<int> named = one_for_all ? std::nullopt : std::optional(rank);
    std::optional<FileStamp> init;
    if (options_.form == Form::parallel_for)  // it has the results of one rank
      model = wrap_parallel_for(std::move(model), program_.mesh);
    else if (const auto once = take_init(model, manifest_.init))
      init = write_model_file(*once, model_file(kInit, named), options);
    FileStamp step = write_model_file(model, model_file(one_for_all ? kOneForAll : kOfRank, named), options);
    manifest_.models.push_back({std::move(step), std::move(ranks), std::move(init)});
  }

  FileStamp write_model_file(const OnnxModel& model, const std::string& file, const ExportOptions& options) const {
    export_model(model, folder_.temporary() / file, options);
    return stamp_of(folder_.temporary(), file);
  }

  const spmd::Program program_;
  const WriteOptions options_;
  const bool placed_;  ///< ranks run parts of the program
  SymbolNames names_;
  AtomicFolder folder_;
  RankClasses weights_;
  Manifest manifest_;
};

}  // namespace

void write_program(const spmd::Program& program, const std::string& source, const fs::path& folder,
                   const WriteOptions& options) {
  if (options.form == Form::mpmd) {
    ProgramWriter(program, source, folder, options).run();
    return;
  }
  if (options.dialect != Dialect::tessera)
    fail("write",
         "models for other engines contain their rank as a constant, but this form is one model for all ranks; give "
         "`form=mpmd`, or leave out `dialect`");
  if (options.rank_id == RankIdentity::constant)
    fail("write",
         "a constant rank needs one model per rank, but this form is one model for all ranks; give `form=mpmd`, or "
         "leave out `rank_id=constant`");
  const bool ports = options.form == Form::parallel_for;
  WriteOptions one = options;
  if (ports) one.rank_id = RankIdentity::input;  // the body's input
  ProgramWriter(spmd::with_whole_edge(program, {.states = true, .ports = ports}), source, folder, one).run();
}

bool is_written_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / kManifestFile, error);
}

std::vector<fs::path> files_of_written_program(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename(); name == kManifestFile || is_model_file(name))
      files.push_back(entry->path());
  for (fs::directory_iterator entry(folder / kWeightsFolder, error), end; !error && entry != end;
       entry.increment(error))
    files.push_back(entry->path());
  return files;
}

}  // namespace tessera::program_io
