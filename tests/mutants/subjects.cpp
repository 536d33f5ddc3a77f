#include "mutants/subjects.h"

#include <array>
#include <cmath>

#include "io/temporary_folder.h"
#include "random/random_program.h"
#include "random/reference.h"
#include "tessera/base/error.h"
#include "tessera/compiler/places.h"
#include "tessera/inspect.h"
#include "tessera/onnx/export.h"

namespace tessera::mutants {
namespace {

/// A part of the largest value of an output.
constexpr double kTolerance = 2e-5;

struct Row {
  const char *model, *mesh, *presets;
  bool staged = false, rings = false;
};
constexpr std::array<Row, 19> kRows = {{
    {"mlp", "tp=2", ""},
    {"mlp", "tp=3", ""},
    {"mlp", "dp=2,tp=2", ""},
    {"tiny", "tp=2", "megatron+sequence"},
    {"tiny", "tp=3", ""},
    {"tiny", "pp=2,tp=2", "", true},
    {"gpt2", "tp=2", ""},
    {"gpt2", "dp=2,tp=2", ""},
    {"gpt2", "pp=2", "", true},
    {"gpt2", "tp=2,pp=2", "", true},
    {"llama", "tp=3", ""},
    {"bert", "tp=2", ""},
    {"bert", "dp=2,tp=2", ""},
    {"vit", "tp=3", ""},
    {"resnet", "tp=2", ""},
    {"resnet", "dp=2", ""},
    {"mlp", "tp=3", "", false, true},
    {"tiny", "tp=3", "megatron+sequence", false, true},
    {"llama", "dp=2,tp=2", "fsdp+megatron", false, true},
}};

std::filesystem::path path_of(const std::string& model) {
  if (model == "tiny") return std::filesystem::path(TESSERA_EXAMPLES) / "tiny/model.onnx";
  return std::filesystem::path(TESSERA_TEST_DATA) / "models" / model / "model.onnx";
}

// Two stages, embedding to head.
std::vector<std::string> stages_of(const std::string& model) {
  if (model == "gpt2")
    return {"m.transformer.wte=pp:0", "m.transformer.wpe=pp:0",  "m.transformer.h.0=pp:0",
            "m.transformer.h.1=pp:1", "m.transformer.ln_f=pp:1", "m.lm_head=pp:1"};
  return {"m.model.embed_tokens=pp:0", "m.model.layers.0=pp:0", "m.model.layers.1=pp:0", "m.model.layers.2=pp:0",
          "m.model.layers.*=pp:1",     "m.model.norm=pp:1",     "m.lm_head=pp:1"};
}

std::string name_of(const Row& row) {
  return std::string(row.model) + " on " + row.mesh + (*row.presets ? std::string(" by ") + row.presets : "") +
         (row.staged ? " in stages" : "") + (row.rings ? " in rings beside products" : "");
}

std::shared_ptr<const Source> source_of(const Row& row) {
  auto source = std::make_shared<Source>(Source{name_of(row), Model::load(path_of(row.model)), Mesh::parse(row.mesh)});
  source->plan.presets = row.presets;
  if (row.rings) source->plan.overlap = "always";
  if (row.staged)
    for (const std::string& place : stages_of(row.model)) source->plan.places.push_back({place, "place"});
  SymbolSizes sizes;
  for (const std::string& symbol : source->model.symbols()) sizes[symbol] = symbol.find("batch") == 0 ? 3 : 7;
  source->inputs = random_inputs(source->model, sizes, 5);
  source->plan.shapes = sizes;
  return source;
}

std::shared_ptr<const Source> source_of_random(uint64_t seed) {
  const random::Program program = random::generate(seed, random::Operators::all);
  if (program.mesh.size() == 1) return nullptr;
  testing_io::TemporaryFolder folder;
  export_model(program.model, folder / "model.onnx");
  auto source = std::make_shared<Source>(
      Source{"random program " + std::to_string(seed), Model::load(folder / "model.onnx"), program.mesh});
  for (const auto& [symbol, size] : program.symbols) source->plan.shapes[symbol] = size;
  for (const random::Order& order : program.orders)
    source->plan.annotations.push_back({order.name + "=" + order.sharding.str(program.mesh), "annotation"});
  for (const random::Placing& placing : program.places)
    source->plan.places.push_back({placing.name + "=" + compiler::request_of(placing.place, program.mesh), "place"});
  if (program.orders.empty()) source->plan.presets = "dp:" + program.mesh.axes().front().name;
  source->inputs = program.inputs;
  for (const auto& [name, facts] : program.facts)
    source->tolerances[name] = facts.exact ? 0 : kTolerance * std::max(1.0, facts.bound);
  return source;
}

std::vector<WriteOptions> forms() {
  std::vector<WriteOptions> all;
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for})
    for (Lower lower : {Lower::collectives, Lower::primitives})
      for (Order order : {Order::tokens, Order::position})
        for (RankIdentity rank_id : {RankIdentity::op, RankIdentity::input, RankIdentity::constant})
          for (RankType type : {RankType::integer, RankType::opaque})
            if ((form == Form::mpmd || rank_id != RankIdentity::constant) &&
                (type == RankType::integer || rank_id == RankIdentity::op))
              all.push_back({lower, order, rank_id, type, form});
  return all;
}

}  // namespace

std::string Subject::str() const {
  const auto words = form.words();
  return (random_program ? "random program " + std::to_string(random_program) : name_of(kRows[model])) + " as " +
         words.at("form") + " of " + words.at("lower") + ", order " + words.at("order") + ", rank-id " +
         words.at("rank_id") + " " + words.at("rank_type");
}

Subject subject(uint64_t k) {
  static const std::vector<WriteOptions> all = forms();
  // Strides that have no divisor in common with the counts, so that neighbours differ in everything.
  Subject subject;
  subject.form = all[k * 11 % all.size()];
  if (k % 4 == 3)
    subject.random_program = k / 4 + 1;
  else
    subject.model = (k - k / 4) * 5 % kRows.size();
  return subject;
}

std::shared_ptr<const Source> Sources::of(const Subject& subject) {
  if (subject.random_program) return source_of_random(subject.random_program);
  auto& known = known_[subject.model];
  if (!known) known = source_of(kRows[subject.model]);
  return known;
}

Program compiled(const Source& source) {
  return compile(source.model, source.mesh, source.plan);
}

Program compiled_whole(const Source& source) {
  // The same axes, so that annotations are understood; they keep larger operators from absorbing values.
  std::vector<MeshAxis> axes = source.mesh.axes();
  for (MeshAxis& axis : axes) axis.size = 1;
  Plan plan = source.plan;
  plan.places.clear();
  try {
    return compile(source.model, Mesh(axes), plan);
  } catch (const Error&) {  // digits of an axis of one rank
    plan.annotations.clear();
    plan.presets.clear();
    return compile(source.model, Mesh(), plan);
  }
}

}  // namespace tessera::mutants
