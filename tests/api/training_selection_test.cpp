// Which of a model's tensors train: what an exporter recorded about them, copies of one parameter, and what the options
// say by the names of the model that was exported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/trained_on_meshes.h"
#include "tessera/error.h"
#include "tessera/onnx/import.h"
#include "tessera/onnx/metadata.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kFolded = "pkg.onnxscript.optimizer.folded_from";
constexpr std::string_view kSignature = "pkg.torch.export.ExportedProgram.graph_signature";

Tensor turned(const Tensor& matrix) {
  const int64_t rows = matrix.dims[0], columns = matrix.dims[1];
  Tensor made = Tensor::zeros(matrix.dtype, {columns, rows});
  auto* to = reinterpret_cast<float*>(made.mutable_data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = matrix.as<float>()[static_cast<size_t>(r * columns + c)];
  return made;
}

// An embedding, a layer, and a head that is the embedding once more, transposed; a table of rotations, and a scale.
constexpr std::string_view kExported = R"(
g (int64[b, s] ids) => (float[b, s, 17] logits)
  <float[17, 6] "embed.weight", float[6, 6] val_1, float[6, 17] val_2, float[1, 6] table, float[6] bias, float exp> {
  h = Gather ("embed.weight", ids)
  mixed = MatMul (h, val_1)
  biased = Add (mixed, bias)
  turned = Mul (biased, table)
  logit = MatMul (turned, val_2)
  logits = Mul (logit, exp)
})";

constexpr std::string_view kTiedByHand = R"(
g (int64[b, s] ids) => (float[b, s, 17] logits)
  <float[17, 6] "embed.weight", float[6, 6] val_1, float[1, 6] table, float[6] bias, float exp> {
  h = Gather ("embed.weight", ids)
  mixed = MatMul (h, val_1)
  biased = Add (mixed, bias)
  turned = Mul (biased, table)
  val_2 = Transpose <perm = [1, 0]> ("embed.weight")
  logit = MatMul (turned, val_2)
  logits = Mul (logit, exp)
})";

class TrainingSelections : public testing::Test {
 protected:
  Model made(std::string_view text, bool recorded, bool equal = true) {
    OnnxModel model = parse_text(std::string("<ir_version: 10, opset_import: [\"\" : 22]>\n") + std::string(text));
    Graph& graph = *model.graph;
    const std::map<std::string, Tensor> values = {{"embed.weight", scattered({17, 6}, 1)},
                                                  {"val_1", scattered({6, 6}, 2)},
                                                  {"val_2", turned(scattered({17, 6}, equal ? 1 : 3))},
                                                  {"table", scattered({1, 6}, 4)},
                                                  {"bias", scattered({6}, 5)},
                                                  {"spare", scattered({6, 17}, 6)},
                                                  {"exp", floats({}, {1.5F})}};
    for (const auto& [name, value] : values)
      if (Value* found = graph.find(name); found && found->has_data()) found->data = value;
    if (recorded) record(graph);
    const std::filesystem::path path = folder_ / ("m" + std::to_string(++count_) + ".onnx").c_str();
    export_model(model, path);
    return Model::load(path);
  }
  static void record(Graph& graph) {
    set_metadata(graph, kSignature,
                 "p_e: PARAMETER target='embed.weight'\np_q: PARAMETER target='layer.0.weight'\n"
                 "p_b: PARAMETER target='bias'\np_s: PARAMETER target='logit_scale'\np_n: PARAMETER target='n.weight'\n"
                 "b_f: BUFFER target='frequencies'\n");
    for (const char* name : {"embed.weight", "bias"}) set_metadata(*graph.find(name), kKind, "PARAMETER");
    set_metadata(*graph.nodes().front(), "pkg.torch.onnx.fx_node", "%norm : norm(args = (%h, %p_n, 1e-05))");
    set_metadata(*graph.find("val_1"), kFolded, "['layer.0.weight', 't_3']");
    set_metadata(*graph.find("val_2"), kFolded, "['embed.weight']");
    set_metadata(*graph.find("table"), kFolded, "['frequencies', 'cos', 'val_9']");
    set_metadata(*graph.find("exp"), kFolded, "['logit_scale']");
  }
  static Training training() {
    Training training;
    training.optimizer = "adamw:weight_decay=0.1";
    training.learning_rate = "0.01";
    return training;
  }
  static const SelectedTensor& row(const TrainingStep& step, const std::string& name) {
    for (const SelectedTensor& tensor : step.selection)
      if (tensor.name == name) return tensor;
    throw std::runtime_error(name + " has no row");
  }
  std::string mistake(const Model& model, const Training& training) {
    try {
      training_step(model, training);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }
  const std::vector<Tensors> batches_ = {{{"ids", classes({2, 5}, 17, 1)}, {"labels", classes({2, 5}, 17, 2)}},
                                         {{"ids", classes({2, 5}, 17, 3)}, {"labels", classes({2, 5}, 17, 4)}}};
  TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(TrainingSelections, are_what_the_exporter_recorded) {
  const TrainingStep step = training_step(made(kExported, true), training());
  EXPECT_THAT(step.parameters, UnorderedElementsAre("embed.weight", "val_1", "bias"));
  EXPECT_THAT(row(step, "val_1").sources, ElementsAre("layer.0.weight"));
  EXPECT_EQ(row(step, "val_2").tied_to, "embed.weight");
  EXPECT_TRUE(row(step, "val_2").transposed);
  EXPECT_TRUE(row(step, "val_2").trains);
  EXPECT_THAT(row(step, "table").why, HasSubstr("from no parameter"));
  EXPECT_THAT(row(step, "exp").why, HasSubstr("'logit_scale'"));
  EXPECT_THAT(step.notes, Contains(AllOf(HasSubstr("'logit_scale'"), HasSubstr("'n.weight'"))));
  EXPECT_TRUE(step.frozen.contains("table"));
  EXPECT_FALSE(step.frozen.contains("val_2"));
}

TEST_F(TrainingSelections, tie_copies_on_every_mesh) {
  // Gradients of both uses are added in the one state; an evaluation sees the same.
  const Model model = made(kExported, true);
  Training by_hand = training();
  by_hand.freeze = {"table"};
  const Trained one = train(made(kTiedByHand, false), by_hand, {"dp=1", ""}, batches_);
  expect_near(train(model, training(), {"dp=1", ""}, batches_), one);
  for (const Layout& layout : all_layouts()) expect_near(train(model, training(), layout, batches_), one);
  Training apart = training();
  apart.tie = {"none"};
  EXPECT_THAT(training_step(model, apart).parameters, Contains("val_2"));
}

TEST_F(TrainingSelections, evaluate_and_save_tied_copies_alike) {
  const Model model = made(kExported, true);
  const TrainingStep step = training_step(model, training());
  Session session(compile(step.model, Mesh::parse("dp=2")), one_thread());
  session.run(batches_[0]);
  SessionOptions sharing = one_thread();
  sharing.share_states = &session;
  Session evaluation_session(compile(evaluation(model, training()), Mesh::parse("dp=2")), sharing);
  const float loss = evaluation_session.run(batches_[1]).at("loss").as<float>()[0];
  Tensors values = session.states(step.parameters);
  step.add_copies(values);
  ASSERT_TRUE(values.contains("val_2"));
  expect_near(turned(values.at("val_2")), values.at("embed.weight"), "val_2");
  EXPECT_NE(values.at("val_2").as<float>()[0], scattered({17, 6}, 1).as<float>()[0]);
  // The model that is written so has the same loss, whether its copies are known as such or not.
  write_trained(model, values, folder_ / "after.onnx");
  Training plain = training();
  plain.tie = {"none"};
  Session after(compile(evaluation(Model::load(folder_ / "after.onnx"), plain), Mesh()), one_thread());
  EXPECT_NEAR(after.run(batches_[1]).at("loss").as<float>()[0], loss, 1e-5);
}

TEST_F(TrainingSelections, take_patterns_of_the_exported_models_names) {
  const Model model = made(kExported, true);
  Training changed = training();
  changed.freeze = {"layer.0.*"};
  changed.no_decay = {"val_2"};
  const TrainingStep step = training_step(model, changed);
  EXPECT_THAT(step.parameters, UnorderedElementsAre("embed.weight", "bias"));
  EXPECT_EQ(row(step, "val_1").why, "`freeze` 'layer.0.*'");
  ASSERT_EQ(step.reached.size(), 2u);
  EXPECT_THAT(step.reached[0].names, ElementsAre("val_1"));
  EXPECT_THAT(step.reached[1].names, UnorderedElementsAre("embed.weight", "val_2"));
  // A copy's name and its source's mean one parameter.
  changed.freeze = {"val_2"};
  EXPECT_THAT(training_step(model, changed).parameters, UnorderedElementsAre("val_1", "bias"));
  // Decay and rates go by the same names.
  Training first = training(), second = training();
  first.no_decay = {"layer.0.weight"};
  first.rate_factors = {{"layer.0.*", 0.5}};
  second.no_decay = {"val_1"};
  second.rate_factors = {{"val_1", 0.5}};
  expect_near(train(model, first, {"dp=1", ""}, batches_), train(model, second, {"dp=1", ""}, batches_));
  first.init = {{"layer.0.weight", "zeros"}};
  Session session(compile(training_step(model, first).model, Mesh()), one_thread());
  EXPECT_EQ(norm_of(session.states({"val_1"}).at("val_1")), 0);
}

TEST_F(TrainingSelections, say_what_became_of_a_parameter_that_is_not_in_the_file) {
  const Model model = made(kExported, true);
  Training changed = training();
  changed.train = {"*logit_scale*"};
  EXPECT_THAT(mistake(model, changed), AllOf(HasSubstr("'exp'"), HasSubstr("optimize=False")));
  changed.train = {"exp"};
  EXPECT_THAT(training_step(model, changed).parameters, Contains("exp"));
  changed.train = {"table"};
  EXPECT_THAT(training_step(model, changed).parameters, Contains("table"));
  changed.train.clear();
  changed.freeze = {"n.weight"};
  EXPECT_THAT(mistake(model, changed), AllOf(HasSubstr("'n.weight'"), HasSubstr("optimize=False")));
  changed.freeze = {"nobody"};
  EXPECT_THAT(mistake(model, changed), HasSubstr("matches no parameter of the model"));
}

TEST_F(TrainingSelections, do_not_tie_what_has_changed_since) {
  const TrainingStep step = training_step(made(kExported, true, false), training());
  EXPECT_THAT(step.parameters, Contains("val_2"));
  EXPECT_THAT(step.notes, Contains(AllOf(HasSubstr("'val_2'"), HasSubstr("values differ"))));
}

TEST_F(TrainingSelections, report_equal_tensors_and_tie_them_if_asked) {
  const Model model = made(kExported, false);
  const TrainingStep apart = training_step(model, training());
  EXPECT_THAT(apart.parameters, Contains("val_2"));
  EXPECT_THAT(apart.notes, Contains(HasSubstr("`tie` 'val_2=embed.weight^T'")));
  Training tied = training();
  tied.tie = {"val_2=embed.weight^T"};
  tied.freeze = {"table"};
  const TrainingStep step = training_step(model, tied);
  EXPECT_THAT(step.parameters, Not(Contains("val_2")));
  EXPECT_THAT(step.notes, Not(Contains(HasSubstr("`tie`"))));
  Training by_hand = training();
  by_hand.freeze = {"table"};
  expect_near(train(model, tied, {"tp=2", ""}, batches_),
              train(made(kTiedByHand, false), by_hand, {"dp=1", ""}, batches_));
}

TEST_F(TrainingSelections, refuse_invalid_ties) {
  const Model model = made(kExported, false);
  Training tied = training();
  for (const auto& [text, part] : std::map<std::string, std::string>{{"val_2", "is not COPY=SOURCE"},
                                                                     {"val_2=embed.weight", "extents"},
                                                                     {"val_1=embed.weight^T", "[6, 6]"},
                                                                     {"val_2=ids", "not a float initializer"},
                                                                     {"val_2=embed.weigth^T", "did you mean"},
                                                                     {"val_1=val_1", "both are"}}) {
    tied.tie = {text};
    EXPECT_THAT(mistake(model, tied), HasSubstr(part)) << text;
  }
  tied.tie = {"val_2=embed.weight^T", "embed.weight=val_2^T"};
  EXPECT_THAT(mistake(model, tied), HasSubstr("chain"));
  // Others may be tied, too: the copy takes the source's values.
  tied.tie = {"bias=table"};
  EXPECT_THAT(mistake(model, tied), HasSubstr("extents"));
  tied.tie = {"val_2=embed.weight^T"};
  const TrainingStep step = training_step(made(kExported, false, false), tied);
  EXPECT_THAT(step.notes, Contains(HasSubstr("its own differ")));
}

TEST_F(TrainingSelections, tie_copies_of_what_is_tied_to_its_source) {
  const Model model = made(R"(
g (int64[b, s] ids) => (float[b, s, 17] logits)
  <float[17, 6] "embed.weight", float[6, 6] val_1, float[6, 17] val_2, float[6, 17] spare, float[1, 6] table,
   float[6] bias, float exp> {
  h = Gather ("embed.weight", ids)
  mixed = MatMul (h, val_1)
  biased = Add (mixed, bias)
  turned = Mul (biased, table)
  logit = MatMul (turned, val_2)
  more = MatMul (turned, spare)
  sum = Add (logit, more)
  logits = Mul (sum, exp)
})",
                           true);
  Training tied = training();
  tied.tie = {"embed.weight=spare^T"};
  const TrainingStep step = training_step(model, tied);
  EXPECT_THAT(step.parameters, UnorderedElementsAre("spare", "val_1", "bias"));
  EXPECT_EQ(row(step, "val_2").tied_to, "spare");
  EXPECT_FALSE(row(step, "val_2").transposed);
  Tensors values = {{"spare", scattered({6, 17}, 6)}};
  step.add_copies(values);
  expect_near(values.at("val_2"), values.at("spare"), "val_2");
  expect_near(turned(values.at("embed.weight")), values.at("spare"), "embed.weight");
  const Trained one = train(model, tied, {"dp=1", ""}, batches_);
  EXPECT_FALSE(one.states.contains("val_2"));
  expect_near(train(model, tied, {"tp=2", ""}, batches_), one);
}

TEST_F(TrainingSelections, save_copies_of_what_is_frozen_as_the_run_used_them) {
  Training tied = training();
  tied.tie = {"val_2=embed.weight^T"};
  tied.freeze = {"embed.weight"};
  const TrainingStep step = training_step(made(kExported, false, false), tied);
  ASSERT_TRUE(step.frozen.contains("val_2"));
  expect_near(turned(step.frozen.at("val_2")), scattered({17, 6}, 1), "val_2");
}

// Whatever lies between a table and its lookup: a cast, a transposition.
TEST_F(TrainingSelections, know_what_indices_look_up) {
  const auto looked_up = [](const Model& model, const Training& training) {
    std::vector<std::string> found;
    for (const IndexRange& range : training_step(model, training).ranges)
      if (range.input == "ids") found.push_back(range.meaning + " " + std::to_string(range.count));
    return found;
  };
  const auto are_of = [](const std::string& table) {
    return ElementsAre(AllOf(HasSubstr("'" + table + "'"), HasSubstr(" 17")));
  };
  Training changed = training();
  EXPECT_THAT(looked_up(made(kExported, false), changed), are_of("embed.weight"));
  for (const DType narrow : {DType::bfloat16, DType::float16}) {
    changed.compute = narrow;
    EXPECT_THAT(looked_up(made(kExported, false), changed), are_of("embed.weight"));
  }
  changed.tie = {"embed.weight=val_2^T"};
  EXPECT_THAT(looked_up(made(kExported, false), changed), are_of("val_2"));
  changed.compute = DType::float32;
  EXPECT_THAT(looked_up(made(kExported, false), changed), are_of("val_2"));
  for (const std::string type : {"float16", "bfloat16"}) {
    const std::string text = "g (int64[b, s] ids) => (" + type + "[b, s, 9] logits) <" + type + "[17, 6] rows, " +
                             type + "[6, 9] head> {\n  h = Gather (rows, ids)\n  logits = MatMul (h, head)\n}";
    EXPECT_THAT(looked_up(made(text, false), training()), are_of("rows"));
  }
}

// The step keeps the exporter's list of parameters, without which a name of the exported model means nothing here.
TEST_F(TrainingSelections, are_laid_out_by_the_exported_models_names) {
  const Model model = made(kExported, true);
  for (const Model& program : {training_step(model, training()).model, evaluation(model, training())}) {
    Plan plan;
    plan.presets = "none";
    plan.storage.push_back({"layer.0.weight=[tp,-]"});
    EXPECT_NO_THROW(compile(program, Mesh::parse("tp=2"), plan));
    plan.storage.clear();
    plan.annotations.push_back({"layer.0.weight=[-,tp]"});
    EXPECT_NO_THROW(compile(program, Mesh::parse("tp=2"), plan));
  }
}

TEST_F(TrainingSelections, freeze_wins_over_train_for_numbers_of_constants) {
  const Model model = made(R"(
g (float[b, 6] x) => (float[b, 6] y) <float[6, 6] val_1> {
  h = MatMul (x, val_1)
  "gain.a" = Constant <value_float = 2.0> ()
  "gain.b" = Constant <value_float = 3.0> ()
  s = Mul (h, "gain.a")
  y = Add (s, "gain.b")
})",
                           false);
  Training squares = training();
  squares.loss = "mse";
  squares.train = {"gain.*"};
  EXPECT_THAT(training_step(model, squares).parameters, UnorderedElementsAre("val_1", "gain.a", "gain.b"));
  squares.freeze = {"gain.b"};
  const TrainingStep step = training_step(model, squares);
  EXPECT_THAT(step.parameters, UnorderedElementsAre("val_1", "gain.a"));
  EXPECT_EQ(row(step, "gain.b").why, "`freeze` 'gain.b'");
  squares.train = {"gain.b"};
  EXPECT_THAT(mistake(model, squares), HasSubstr("does not train: `freeze` 'gain.b'"));
}

TEST_F(TrainingSelections, list_what_looks_constant) {
  const Model model = made(R"(
g (float[b, 3, 6] x) => (float[b, 3, 6] y)
  <float[6, 6] val_1, float[3, 6] first, float[3, 6] second, float[3, 6] third, float[3, 6] fourth> {
  h = MatMul (x, val_1)
  a = Mul (h, first)
  c = Mul (a, second)
  d = Mul (c, third)
  y = Mul (d, fourth)
})",
                           false);
  Training squares = training();
  squares.loss = "mse";
  EXPECT_THAT(training_step(model, squares).notes, Contains(HasSubstr("'third' and 1 other;")));
}

TEST_F(TrainingSelections, guess_constants_by_who_reads_them) {
  const Model model = made(R"(
g (float[b, 3, 6] x) => (float[b, 3, 6] y)
  <float[6, 6] val_1, float[3, 6] rotations, float[6] scale, float[3, 6] positions, float[6] bias> {
  h = MatMul (x, val_1)
  placed = Add (h, positions)
  turned = Mul (placed, rotations)
  scaled = Mul (turned, scale)
  y = Add (scaled, bias)
})",
                           false);
  Training squares = training();
  squares.loss = "mse";
  const TrainingStep step = training_step(model, squares);
  EXPECT_THAT(step.parameters, UnorderedElementsAre("val_1", "scale", "positions", "bias"));
  EXPECT_THAT(row(step, "rotations").why, HasSubstr("only Mul reads it"));
  EXPECT_THAT(step.notes, Contains(AllOf(HasSubstr("'rotations'"), HasSubstr("`train`"))));
  squares.train = {"rotations"};
  EXPECT_THAT(training_step(model, squares).parameters, Contains("rotations"));
}

TEST_F(TrainingSelections, leave_out_what_an_operator_reads_beforehand) {
  const Model model = made(R"(
g (float[2, 3, 4, 4] x) => (float[2, 3, 8, 8] y) <float[3, 1, 1] factors, float[2] ones = {1.0, 1.0}, float[2] twos = {2.0, 2.0}> {
  h = Mul (x, factors)
  scales = Concat <axis = 0> (ones, twos)
  y = Resize <mode = "nearest"> (h, , scales)
})",
                           false);
  Training squares = training();
  squares.loss = "mse";
  const TrainingStep step = training_step(model, squares);
  EXPECT_THAT(step.parameters, ElementsAre("factors"));
  EXPECT_THAT(row(step, "twos").why, AllOf(HasSubstr("Resize"), HasSubstr("before the run")));
  const Tensors batch = {{"x", scattered({2, 3, 4, 4}, 1)}, {"labels", scattered({2, 3, 8, 8}, 2)}};
  const Trained one = train(model, squares, {"dp=1", ""}, {batch});
  expect_near(train(model, squares, {"dp=2", ""}, {batch}), one);
  squares.train = {"twos"};
  EXPECT_THAT(mistake(model, squares), HasSubstr("needs before the run"));
}

TEST_F(TrainingSelections, train_numbers_that_are_parameters) {
  const std::string text = R"(
g (float[b, 6] x) => (float[b, 6] y) <float[6, 6] val_1, float temperature, float two = {2}> {
  h = MatMul (x, val_1)
  s = Mul (h, temperature)
  y = Mul (s, two)
})";
  OnnxModel model = parse_text("<ir_version: 10, opset_import: [\"\" : 22]>\n" + text);
  for (const char* name : {"val_1", "temperature"}) {
    model.graph->find(name)->data = scattered(model.graph->find(name)->data.dims, 3);
    set_metadata(*model.graph->find(name), kKind, "PARAMETER");
  }
  export_model(model, folder_ / "m.onnx");
  Training squares = training();
  squares.loss = "mse";
  EXPECT_THAT(training_step(Model::load(folder_ / "m.onnx"), squares).parameters,
              UnorderedElementsAre("val_1", "temperature"));
}

}  // namespace
}  // namespace tessera::test
