#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/branches.h"
#include "tessera/dialect/inline.h"
#include "tessera/io/mapped_file.h"
#include "tessera/mesh/sharding.h"
#include "tessera/onnx/external_location.h"
#include "tessera/onnx/import.h"
#include "tessera/passes/init.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/program_io/init_model.h"
#include "tessera/program_io/lowered_calls.h"
#include "tessera/program_io/manifest.h"
#include "tessera/program_io/misfit.h"
#include "tessera/program_io/normal_form.h"
#include "tessera/program_io/parallel_for.h"
#include "tessera/program_io/rank_classes.h"
#include "tessera/program_io/rank_model.h"
#include "tessera/program_io/weights_file.h"
#include "tessera/program_io/written_form.h"
#include "tessera/program_io/written_program.h"
#include "tessera/proof/layouts.h"
#include "tessera/proof/prove.h"
#include "tessera/spmd/partition/whole.h"

namespace tessera::program_io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFix = "write the program again, or copy its folder whole";

// The place of a model's states: the same in every weights file of its class, or the model itself or a file of its own.
struct ShardLayout {
  struct Piece {
    std::string name;
    Tensor own;  ///< its type and extents; also its elements if it is not in a weights file
    std::optional<uint64_t> offset;
  };
  std::string model;
  std::vector<Piece> pieces;
};

class ProgramReader {
 public:
  ProgramReader(const fs::path& folder, Manifest manifest)
      : folder_(folder),
        manifest_(std::move(manifest)),
        functions_(manifest_.mesh,
                   {manifest_.form.rank_type == RankType::opaque, manifest_.form.order == Order::tokens}) {}

  std::shared_ptr<const runtime::RankPrograms> run(bool changed_models) {
    const std::string accept =
        fmt::format("{}; or, if the change is intended, accept it with `changed_models` '{}'", kFix, folder_.string());
    for (const FileStamp* stamp : manifest_.model_stamps())
      if (!changed_models) check_stamp(folder_, *stamp, accept);
    for (const Manifest::RankFile& file : manifest_.weights) check_size(folder_, file.stamp, kFix);
    auto programs = std::make_shared<runtime::RankPrograms>();
    read_models(*programs);
    if (is_cut() && !manifest_.states.empty()) read_weights(*programs);
    return programs;
  }

  std::vector<Manifest::RankMeaning> proved_meanings() {
    runtime::RankPrograms programs;
    read_models(programs);
    const proof::Report report = proof::prove(programs);
    if (!report.good()) throw Error(ErrorKind::running, "write", report.findings.front().message);
    return std::move(meanings_);
  }

 private:
  // Whether weights are stored as ranks' shards; if not, each rank cuts its own from whole weights.
  bool is_cut() const { return manifest_.form.form == Form::mpmd; }

  void read_models(runtime::RankPrograms& programs) {
    programs.program_of.resize(static_cast<size_t>(manifest_.mesh.size()));
    for (const Manifest::RankFile& file : manifest_.models) read_model(file, programs);
  }

  void read_model(const Manifest::RankFile& file, runtime::RankPrograms& programs) {
    const std::string path = (folder_ / file.stamp.file).string();
    OnnxModel model = import_model(path, &programs.files);
    dialect::settle_literals(*model.graph);
    if (file.init) {
      const std::string once = (folder_ / file.init->file).string();
      const OnnxModel init = import_model(once, &programs.files);
      dialect::settle_literals(*init.graph);
      put_back_init(model, init, once);
    }
    if (manifest_.form.form == Form::parallel_for) model = unwrap_parallel_for(std::move(model), manifest_.mesh, path);
    require_form(model, manifest_.form, path);
    if (!is_cut())
      for (const ShardLayout::Piece& piece : layout_of(model, path, manifest_.mesh.coordinates(0)).pieces)
        require_as_written(piece, piece.own, manifest_.weights.front(), path, 0);
    lowered_ = std::make_shared<const std::vector<spmd::LoweredCollective>>(
        lowered_collectives(model, manifest_, file, path, functions_));
    const bool bound = file.ranks.size() == 1;
    take_position_inputs(*model.graph, manifest_.mesh, bound ? std::optional<int64_t>(file.ranks[0]) : std::nullopt);
    read_class(std::move(model), file.ranks, bound, path, programs);
  }

  // One program over axis indices serves all ranks of a model that take the same branches and hold the same states and
  // outputs. A model that only one rank runs becomes a program of that rank.
  void read_class(OnnxModel model, const std::vector<int>& ranks, bool bound, const std::string& path,
                  runtime::RankPrograms& programs) {
    dialect::inline_calls(model);
    const std::vector<Expr> conditions = dialect::branch_conditions(*model.graph, manifest_.mesh);
    std::vector<Expr> asked = conditions;
    for (const AxisRef& axis : placed_axes()) asked.push_back(index_along(axis, manifest_.mesh));
    const RankClasses all = classes_by(manifest_.mesh, asked);
    std::map<int, std::vector<int>> classes;
    for (int rank : ranks) classes[all.of_rank[rank]].push_back(rank);
    for (const auto& [index, alike] : classes) {
      OnnxModel own = classes.size() == 1 ? std::move(model) : model.clone();
      if (conditions.empty()) {
        add(std::move(own), alike, bound, path, programs);
        continue;
      }
      dialect::choose_branches(*own.graph, manifest_.mesh, alike.front());
      read_class(std::move(own), alike, bound, path, programs);  // one class for each outcome of the branches
    }
  }

  // The axes along which states and outputs live on only some ranks.
  std::set<AxisRef> placed_axes() const {
    std::set<AxisRef> axes;
    for (const Manifest::State& state : manifest_.states)
      for (const PlacedAxis& entry : state.sharding.at) axes.insert(entry.axis);
    for (const Manifest::Tensor& output : manifest_.outputs)
      for (const PlacedAxis& entry : output.sharding.at) axes.insert(entry.axis);
    return axes;
  }

  void add(OnnxModel model, const std::vector<int>& ranks, bool bound, const std::string& path,
           runtime::RankPrograms& programs) {
    if (is_cut()) layouts_.push_back(layout_of(model, path, manifest_.mesh.coordinates(ranks.front())));
    std::map<std::string, Tensor> whole;
    if (!is_cut())
      for (const Manifest::State& state : manifest_.states) whole[state.value] = model.graph->find(state.value)->data;
    ReadProgram read = program_of(std::move(model), manifest_, path, ranks, bound);
    require_types(read, ranks);
    auto program = std::make_shared<spmd::Program>(std::move(read.program));
    program->lowered = lowered_;
    hold_to_meaning(*program, ranks, bound);
    for (const auto& [name, data] : whole) program->initial[program->graph->find(name)] = data;
    if (!is_cut()) spmd::take_slices_only(*program, bound ? std::optional<int64_t>(ranks.front()) : std::nullopt);
    passes::move_to_init(*program, manifest_.init);
    for (int rank : ranks) programs.program_of[rank] = static_cast<int>(programs.programs.size());
    programs.programs.push_back(std::move(program));
  }

  // Before slices are taken from whole tensors, since slices then become inputs, which no node makes.
  static void require_types(const ReadProgram& read, const std::vector<int>& ranks) {
    proof::Report report;
    for (int rank : std::set<int>{ranks.front(), ranks.back()})
      if (report.good()) proof::check_stated(read.program, read.stated, rank, report);
    if (!report.good()) throw Misfit(report.findings.front());
  }

  // Before slices are taken from whole tensors, since that, too, reads the nodes.
  void hold_to_meaning(spmd::Program& program, const std::vector<int>& ranks, bool bound) {
    const proof::Number found = proof::meaning_of(program, ranks).whole;
    if (manifest_.meanings.empty()) return add_meaning(found, program, ranks, bound);
    std::optional<spmd::Program> normal;
    for (const Manifest::RankMeaning& meaning : manifest_.meanings) {
      const bool any = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
        return std::binary_search(meaning.ranks.begin(), meaning.ranks.end(), rank);
      });
      if (!any || found == meaning.written) continue;
      if (!normal) normal = normal_form(program);
      program.departure = proof::departure(*normal, meaning.normal, ranks);
      if (program.departure) return;
    }
    program.as_written = true;
  }

  void add_meaning(const proof::Number& found, const spmd::Program& program, const std::vector<int>& ranks,
                   bool bound) {
    // In a program over axis indices, more may be known for one class of ranks than for others.
    std::optional<proof::Meaning> normal;
    if (!bound) normal = proof::meaning_of(normal_form(program), ranks);
    auto known = std::find_if(meanings_.begin(), meanings_.end(), [&](const Manifest::RankMeaning& other) {
      return other.written == found && (!normal || other.normal.whole == normal->whole);
    });
    if (known == meanings_.end()) {
      if (!normal) normal = proof::meaning_of(normal_form(program), ranks);
      known = meanings_.insert(meanings_.end(), {found, *std::move(normal), {}});
    }
    known->ranks.insert(known->ranks.end(), ranks.begin(), ranks.end());
    std::sort(known->ranks.begin(), known->ranks.end());
  }

  bool is_weights_file(const std::string& file) const {
    return std::any_of(manifest_.weights.begin(), manifest_.weights.end(),
                       [&](const Manifest::RankFile& weights) { return weights.stamp.file == file; });
  }

  // In the form mpmd, weights are in the weights files of the model's class or, if there is only one set of weights,
  // wherever the model says.
  ShardLayout layout_of(const OnnxModel& model, const std::string& path,
                        const std::vector<int64_t>& coordinates) const {
    ShardLayout layout{path, {}};
    for (const Manifest::State& state : manifest_.states) {
      if (!state.sharding.lives_on(manifest_.mesh, coordinates)) continue;
      const Value* value = model.graph->find(state.value);
      if (!value || !value->has_data())
        fail("program", "'{}' has no data for the state '{}'; write the program again", path, state.value);
      const auto location = external_location(*value);
      const bool shared = location && is_weights_file(location->file);
      layout.pieces.push_back({state.value, value->data, shared ? std::optional(location->offset) : std::nullopt});
    }
    return layout;
  }

  void read_weights(runtime::RankPrograms& programs) {
    programs.shards_of.resize(programs.program_of.size());
    for (const Manifest::RankFile& file : manifest_.weights) {
      auto mapped = MappedFile::open(folder_ / file.stamp.file, "program");
      programs.files.push_back(mapped->identity());
      std::map<int, int> known;  // by the model's index
      for (int rank : file.ranks) {
        int model = programs.program_of[rank];
        auto [found, fresh] = known.emplace(model, static_cast<int>(programs.shards.size()));
        if (fresh) programs.shards.push_back(shards_in(mapped, file, layouts_[model], rank));
        programs.shards_of[rank] = found->second;
      }
    }
  }

  runtime::RankPrograms::Shards shards_in(const std::shared_ptr<const MappedFile>& mapped,
                                          const Manifest::RankFile& file, const ShardLayout& layout, int rank) const {
    runtime::RankPrograms::Shards shards;
    for (const ShardLayout::Piece& piece : layout.pieces) {
      Tensor shard = piece.own;
      if (piece.offset) {
        if (*piece.offset > mapped->size() || shard.bytes > mapped->size() - *piece.offset)
          fail("program", "'{}' ends before the shard of '{}' at byte {}; it belongs to another program",
               (folder_ / file.stamp.file).string(), piece.name, *piece.offset);
        shard = {shard.dtype, shard.dims, mapped, mapped->data() + *piece.offset, shard.bytes};
      }
      require_as_written(piece, shard, file, layout.model, rank);
      shards.emplace(piece.name, std::move(shard));
    }
    return shards;
  }

  // The data that a model uses as a state's shard must be the data written for it, wherever they are stored.
  void require_as_written(const ShardLayout::Piece& piece, const Tensor& shard, const Manifest::RankFile& file,
                          const std::string& model, int rank) const {
    const uint64_t hash = hash_of_shard(shard);
    auto written = file.hashes.find(piece.name);
    if (written != file.hashes.end() && written->second == hash) return;
    std::string whose;
    for (const Manifest::RankFile& other : manifest_.weights)
      for (const auto& [name, its] : other.hashes)
        if (its == hash && whose.empty())
          whose = fmt::format("; it is that of '{}' on rank {}", name, other.ranks.front());
    const std::string where =
        piece.offset ? fmt::format("in '{}' from byte {} on", (folder_ / file.stamp.file).string(), *piece.offset)
                     : fmt::format("with '{}'", model);
    fail("program", "the shard of '{}' that rank {} finds {} has changed since it was written{}: {}{}", piece.name,
         rank, where, whose, piece.offset ? "" : "save the model without loading its external data, or ", kFix);
  }

  const fs::path folder_;
  Manifest manifest_;
  dialect::FunctionCheck functions_;
  std::shared_ptr<const std::vector<spmd::LoweredCollective>> lowered_;  ///< of the model that is being read
  std::vector<ShardLayout> layouts_;                                     ///< by model
  std::vector<Manifest::RankMeaning> meanings_;                          ///< if the manifest has none yet
};

}  // namespace

std::shared_ptr<const runtime::RankPrograms> read_program(const fs::path& folder, bool changed_models) {
  return ProgramReader(folder, read_manifest(folder)).run(changed_models);
}

std::vector<Manifest::RankMeaning> proved_meanings(const fs::path& folder, const Manifest& manifest) {
  return ProgramReader(folder, manifest).proved_meanings();
}

}  // namespace tessera::program_io
