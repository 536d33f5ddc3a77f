// The commands' messages for mistakes.
#include "cli/command_line.h"

namespace tessera {
namespace {

TEST_F(CommandLine, mistakes_with_written_programs) {
  std::string written = (folder_ / "out").string();
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --quiet -o " + written).code, 0);
  EXPECT_THAT(mistake("run " + written + " --mesh tp=4"), HasSubstr("is a written program"));
  EXPECT_THAT(mistake("run " + written), HasSubstr("give --inputs with x float32 [batch, 8]"));
  std::filesystem::create_directory(folder_ / "home");
  testing_io::put(folder_ / "home/letter.txt", "dear");
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2 -o " + (folder_ / "home").string()), HasSubstr("home"));
  EXPECT_EQ(contents(folder_ / "home/letter.txt"), "dear");
}

TEST_F(CommandLine, mistakes_in_the_model) {
  EXPECT_THAT(mistake("inspect /nowhere/model.onnx"), HasSubstr("/nowhere/model.onnx"));
  testing_io::put(folder_ / "broken.onnx", "\xff\xff not a model");
  EXPECT_THAT(mistake("run " + (folder_ / "broken.onnx").string()), HasSubstr("broken.onnx"));
  testing_io::put(folder_ / "wrong.onnxtxt", "g (float[4] x) => (float[4] y) {\n  y = Relu (x\n}");
  EXPECT_THAT(mistake("run " + (folder_ / "wrong.onnxtxt").string()),
              AllOf(HasSubstr("wrong.onnxtxt', line 3, column 1: "), HasSubstr("expected ',' or ')'")));
  TemporaryFolder other;
  std::string unknown =
      write_model(other, "g (float[4] x) => (float[4] y) { [odd] y = com.example.Frobnicate (x) }").string();
  EXPECT_THAT(mistake("run " + unknown), HasSubstr("Frobnicate"));
}

TEST_F(CommandLine, mistakes_in_the_mesh) {
  std::string run = "run " + model_;
  EXPECT_THAT(mistake(run + " --mesh tp"), HasSubstr("[mesh]"));
  EXPECT_THAT(mistake(run + " --mesh tp=two"), HasSubstr("'two' of axis 'tp' is not a whole number"));
  EXPECT_THAT(mistake(run + " --mesh tp=0"), HasSubstr("a size is at least 1"));
  EXPECT_THAT(mistake(run + " --mesh tp=2,tp=2"), HasSubstr("'tp' is named twice"));
  EXPECT_THAT(mistake(run + " --mesh zz=2"), AllOf(HasSubstr("'zz' implies no preset"), HasSubstr("dp:zz")));
}

TEST_F(CommandLine, mistakes_in_the_pipeline) {
  const std::string run = "run " + model_;
  EXPECT_THAT(mistake(run + " --mesh pp=2 --pipeline 1f2b"),
              AllOf(HasSubstr("[pipeline] '1f2b' is no schedule"), HasSubstr("1f1b, interleaved:V")));
  for (const char* wrong : {"7,x", "7,", ",7", "-1", "7;9", "many", "7,9.5"})
    EXPECT_THAT(mistake(run + " --mesh pp=2 --stages '" + wrong + "'"),
                HasSubstr(std::string("--stages ") + wrong + ": write auto, or the number of blocks"));
  EXPECT_THAT(mistake(run + " --mesh tp=2 --pipeline 1f1b"),
              HasSubstr("--pipeline 1f1b needs an axis 'pp' in the mesh, and tp=2 has none"));
  EXPECT_THAT(mistake(run + " --stages 1,1"), HasSubstr("--stages 1,1 needs an axis 'pp'"));
  EXPECT_THAT(mistake(run + " --mesh pp=2 --pipeline 1f1b --place y=pp:1"),
              HasSubstr("and so does --place 'y=pp:1' with some"));
  testing_io::put(folder_ / "table.csv", "0F0,?\n1F0\n");
  EXPECT_THAT(mistake(run + " --mesh pp=2 --pipeline " + (folder_ / "table.csv").string()),
              HasSubstr("rank 0, slot 1: '?' is not an action"));
}

TEST_F(CommandLine, mistakes_of_layouts_that_change_too_much) {
  const std::string shard = "shard " + model_ + " --mesh tp=2 --shapes batch=4 --dry-run --max-reshard-bytes ";
  EXPECT_EQ(tessera(shard + "128").code, 0);  // the all-reduce of [4, 8]
  EXPECT_THAT(mistake(shard + "127"), AllOf(HasSubstr("[reshard] 'y' has the layout [-, -] partial(sum:tp)"),
                                            HasSubstr("AllReduce tp"), HasSubstr("128 bytes, more than the 127")));
  EXPECT_THAT(mistake(shard + "many"), HasSubstr("'many' is not a size"));
}

// A program takes both extents for one; with inputs of other sizes, the model runs in parts.
TEST_F(CommandLine, runs_branches_of_two_sizes) {
  testing_io::put(
      folder_ / "two.onnxtxt",
      "<ir_version: 10, opset_import: [\"\": 23]>\n"
      "g (bool k, float[a] x, float[c] y) => (float[d] z, float[a] v) {\n"
      "  v = Exp (x)\n"
      "  z = If (k) <then_branch = t () => (p) { p = Abs (x) }, else_branch = e () => (q) { q = Neg (y) }>\n"
      "}");
  const std::string two = (folder_ / "two.onnxtxt").string(), in = (folder_ / "two.npz").string();
  write_npz(in, {{"k", Tensor::of<uint8_t>(DType::boolean, {}, {0})},
                 {"x", Tensor::of<float>(DType::float32, {2}, {1, 2})},
                 {"y", Tensor::of<float>(DType::float32, {3}, {1, 2, 3})}});
  const Ran ran = tessera("run " + two + " --mesh tp=2 --preset none --inputs " + in);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("ran in 1 part, since a branch or loop takes two sizes for one"),
                             HasSubstr("float32 [3]   -1 -2 -3")));
  EXPECT_EQ(parsed("verify " + two + " --mesh tp=2 --preset none --inputs " + in)["pass"], true);
  EXPECT_THAT(mistake("run " + two + " --dump=fold --inputs " + in), HasSubstr("takes two sizes for one"));
  EXPECT_EQ(tessera("run " + two + " --dump=fold --fetch v --inputs " + in).code, 0) << "the branch is not needed";
  const Ran random = tessera("run " + two + " --mesh tp=2 --preset none --shapes a=2,c=3");
  EXPECT_EQ(random.code, 0) << random.err;
  EXPECT_THAT(random.out, HasSubstr("since a branch or loop takes two sizes for one"));
  const Ran bench = tessera("bench " + two + " --mesh tp=2 --preset none --shapes a=2,c=3");
  EXPECT_EQ(bench.code, 2);
  EXPECT_THAT(bench.err, HasSubstr("the model itself runs in parts then, on ranks of one process"));
}

// Such extents come from exporters that know what a dimension must be a multiple of.
TEST_F(CommandLine, takes_extents_of_inputs_that_are_expressions) {
  testing_io::put(folder_ / "pairs.onnxtxt", R"(<ir_version: 10, opset_import: ["": 23]>
g (float["2*pairs"] x) => (float["2*pairs"] y) { y = Relu (x) })");
  const std::string pairs = (folder_ / "pairs.onnxtxt").string(), in = (folder_ / "x.npz").string();
  write_npz(in, {{"x", Tensor::of<float>(DType::float32, {6}, {1, -2, 3, -4, 5, -6})}});
  EXPECT_THAT(tessera("run " + pairs + " --mesh dp=2 --inputs " + in).out, HasSubstr("float32 [6]   1 0 3 0"));
  EXPECT_EQ(parsed("verify " + pairs + " --mesh dp=2 --inputs " + in)["pass"], true);
  EXPECT_EQ(tessera("run " + pairs + " --mesh dp=2 --shapes pairs=4").code, 0);
  const std::string written = (folder_ / "written").string();
  EXPECT_EQ(tessera("shard " + pairs + " --mesh dp=2 -o " + written).code, 0);
  EXPECT_THAT(tessera("run " + written + " --inputs " + in).out, HasSubstr("float32 [6]   1 0 3 0"));
  EXPECT_THAT(mistake("run " + pairs + " --mesh dp=2 --shapes pairs=4 --inputs " + in),
              HasSubstr("--shapes says pairs=4, but the inputs' shapes say pairs=3; leave pairs out of --shapes"));
  write_npz(in, {{"x", Tensor::of<float>(DType::float32, {5}, {1, -2, 3, -4, 5})}});
  EXPECT_THAT(mistake("run " + pairs + " --mesh dp=2 --inputs " + in), HasSubstr("but the model needs 2*pairs"));
}

// A sequence is as long as the batch: a program for each size, where others bind one to all sizes.
TEST_F(CommandLine, compiles_for_the_lengths_of_sequences) {
  const std::string text = R"(<ir_version: 10, opset_import: ["": 23]>
g (float[batch, 4] x) => (float[rows] y) {
  none = SequenceEmpty ()
  shape = Shape <end = 1> (x)
  trips = Squeeze (shape)
  filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[m] after) {
    row = Gather (x, k)
    after = SequenceInsert (before, row)
    go = Identity (on)
  }> (trips, "", none)
  y = ConcatFromSequence <axis = 0> (filled)
})";
  testing_io::put(folder_ / "rows.onnxtxt", text);
  const std::string rows = (folder_ / "rows.onnxtxt").string(), in = (folder_ / "x.npz").string();
  const std::string alone = "compiled for batch=3 only, since that decides how many tensors a sequence has";
  EXPECT_THAT(tessera("inspect " + rows).out, HasSubstr("each size of batch has a program of its own"));
  EXPECT_EQ(parsed("inspect " + rows)["size_symbols"], nlohmann::json({"batch"}));
  EXPECT_FALSE(parsed("inspect " + rows + " --shapes batch=3")["operators_rewritten"].empty());
  write_npz(in, {{"x", Tensor::of<float>(DType::float32, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}});
  const Ran ran = tessera("run " + rows + " --mesh dp=2 --inputs " + in);
  EXPECT_THAT(ran.out + ran.err, AllOf(HasSubstr(alone), HasSubstr("float32 [12]   1 2 3 4")));
  for (const std::string& with : {" --inputs " + in, std::string(" --shapes batch=3")})
    EXPECT_EQ(parsed("verify " + rows + " --mesh dp=2" + with)["pass"], true) << with;
  const Ran steps = tessera("run " + rows + " --mesh dp=2 --shapes batch=3 --spawn 2");
  EXPECT_THAT(steps.out + steps.err, AllOf(HasSubstr(alone), HasSubstr("float32 [12]")));
  for (const std::string& command : {std::string("bench --iterations 3 "), std::string("check ")}) {
    const Ran other = tessera(command + rows + " --mesh dp=2 --shapes batch=3");
    EXPECT_EQ(other.code, 0) << command;
    EXPECT_THAT(other.out + other.err, HasSubstr(alone)) << command;
  }
  EXPECT_THAT(tessera("explain " + rows + " y --mesh dp=2 --shapes batch=3").out, HasSubstr("y: float32 [12]"));
  EXPECT_THAT(mistake("shard " + rows + " --mesh dp=2 --dry-run"),
              AllOf(HasSubstr("iterations is batch"), HasSubstr("--fix batch=SIZE")));
  EXPECT_EQ(tessera("shard " + rows + " --mesh dp=2 --dry-run --fix batch=3").code, 0);
  // What takes parts once its sizes are known takes random inputs, too.
  std::string parts = text;
  parts.replace(parts.find("float[rows] y"), 13, "int64[1, found] y");
  parts.replace(parts.find("y = Concat"), 10, "all = Concat");
  parts.replace(parts.rfind('}'), 1, "  y = NonZero (all)\n}");
  testing_io::put(folder_ / "parts.onnxtxt", parts);
  const std::string in_parts = (folder_ / "parts.onnxtxt").string();
  const Ran random = tessera("run " + in_parts + " --mesh dp=2 --shapes batch=3");
  EXPECT_THAT(random.out, HasSubstr("ran in 1 part, since shapes depend on what the model computes")) << random.err;
  EXPECT_EQ(parsed("verify " + in_parts + " --mesh dp=2 --shapes batch=3")["pass"], true);
  const Ran grown = tessera("bench " + rows + " --grow batch");
  EXPECT_EQ(grown.code, 2);
  EXPECT_THAT(grown.err, HasSubstr("grow another size"));
  const Ran many = tessera("run " + rows + " --shapes batch=9000");
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.err, HasSubstr("there are 9000, and at most"));
}

TEST_F(CommandLine, mistakes_in_values_that_decide_shapes) {
  testing_io::put(folder_ / "axes.onnxtxt",
                  "<ir_version: 10, opset_import: [\"\": 23]>\n"
                  "g (float[a, b] x, int64[n] axes) => (float[c, d] y) { y = ReduceSum (x, axes) }");
  testing_io::put(folder_ / "parts.onnxtxt",
                  "<ir_version: 10, opset_import: [\"\": 23]>\n"
                  "g (float[a, b] x) => (int64[2, n] at) { at = NonZero (x) }");
  const std::string axes = (folder_ / "axes.onnxtxt").string(), parts = (folder_ / "parts.onnxtxt").string();
  EXPECT_THAT(mistake("run " + axes), AllOf(HasSubstr("elements of input 'axes'"), HasSubstr("--inputs")));
  EXPECT_THAT(mistake("shard " + axes + " --mesh dp=2 --dry-run"), HasSubstr("'axes'"));
  EXPECT_THAT(mistake("bench " + parts + " --mesh dp=2"), HasSubstr("only tessera run or verify does that"));
  EXPECT_THAT(mistake("verify " + parts + " --mesh dp=2 --first-diverging"), HasSubstr("leave out --first-diverging"));
  EXPECT_THAT(mistake("shard " + parts + " --mesh dp=2 --dry-run"), HasSubstr("compiles it in parts"));
  EXPECT_THAT(mistake("run " + parts + " --dump=fold"), HasSubstr("leave out --dump"));
  EXPECT_EQ(tessera("run " + parts + " --mesh dp=2").code, 0);
  EXPECT_THAT(tessera("inspect " + parts).out, HasSubstr("in parts while it runs"));
  const std::string sizes = " --shapes a=3,b=4 ";
  EXPECT_THAT(tessera("verify " + parts + sizes + "--mesh dp=2").out, testing::EndsWith("pass\n"));
  const std::string answer = (folder_ / "at.npz").string(), in = (folder_ / "x.npz").string();
  write_npz(folder_ / "x.npz", {{"x", Tensor::of<float>(DType::float32, {2, 2}, {0, 1, 2, 0})}});
  EXPECT_EQ(tessera("run " + parts + " --inputs " + in + " --outputs " + answer).code, 0);
  const std::string compared = "verify " + parts + " --mesh dp=2 --inputs " + in + " --expected " + answer;
  EXPECT_EQ(parsed(compared)["pass"], true);
  write_npz(folder_ / "at.npz", {{"at", Tensor::of<int64_t>(DType::int64, {2, 2}, {0, 1, 0, 0})}});
  EXPECT_EQ(tessera(compared).code, 1) << "another answer is wrong";
  EXPECT_THAT(tessera("inspect " + axes).out, HasSubstr("the elements of axes"));
}

TEST_F(CommandLine, mistakes_in_the_topology) {
  std::string file = (folder_ / "cluster.json").string();
  testing_io::put(file, R"({"axes": {"tp": [{"size": 3, "alpha": 0, "bandwidth": 1}]}})");
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology " + file),
              HasSubstr("[topology] " + file + ": the levels of axis 'tp' join 3 ranks, but the mesh has tp=2"));
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology /nowhere.json"),
              HasSubstr("[topology] /nowhere.json cannot be read"));
  testing_io::put(file, "tp=2");
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology " + file), HasSubstr("is not JSON"));
}

TEST_F(CommandLine, mistakes_in_presets) {
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --preset magatron"),
              AllOf(HasSubstr("there is no preset 'magatron'"), HasSubstr("megatron")));
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --preset megatron:x"), HasSubstr("no axis 'x'"));
}

TEST_F(CommandLine, mistakes_in_annotations) {
  std::string run = "run " + model_ + " --mesh tp=2 --annotate ";
  EXPECT_THAT(mistake(run + "'upp=[-,tp]'"), HasSubstr("'upp' matches no tensor of the model; did you mean 'up'? "
                                                       "(tessera inspect --weights lists the parameters)"));
  EXPECT_THAT(mistake(run + "'h.*.q=[-,tp]'"), HasSubstr("'h.*.q' matches no tensor"));
  EXPECT_THAT(mistake(run + "up"), HasSubstr("'up' is not an annotation; write NAME=[d, …]"));
  EXPECT_THAT(mistake(run + "'up=[tp,tp]'"), HasSubstr("'up'"));
  EXPECT_THAT(mistake(run + "'up=[-,x]'"), HasSubstr("x"));
  EXPECT_THAT(mistake(run + "'up=[-]'"), HasSubstr("'up'"));
  EXPECT_THAT(mistake(run + "'u*=[-,-,tp]'"), HasSubstr("none with 3 dimensions"));
}

TEST_F(CommandLine, mistakes_in_places) {
  const std::string run = "run " + model_ + " --mesh pp=4 --place ";
  EXPECT_THAT(mistake(run + "nothing=pp:1"), HasSubstr("'nothing' matches no node"));
  EXPECT_THAT(mistake(run + "'hiden=pp:1'"), HasSubstr("did you mean 'hidden'?"));
  EXPECT_THAT(mistake("run " + std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx --mesh pp=2 --place layers.5=pp:1"),
              HasSubstr("did you mean 'm.model.layers.5'"))
      << "modules are named, too";
  EXPECT_THAT(mistake(run + "hidden=pp:4"), HasSubstr("axis 'pp' has no index 4; its indices are 0 to 3"));
  EXPECT_THAT(mistake(run + "'hidden=pp:(2)2=2'"), HasSubstr("'hidden': axis 'pp:(2)2' has no index 2"));
  EXPECT_EQ(tessera(run + "'hidden=pp:(2)2=1'").code, 0) << "as Tessera prints it";
}

TEST_F(CommandLine, mistakes_in_inputs) {
  std::string run = "run " + model_ + " --mesh tp=2 --inputs ";
  EXPECT_THAT(mistake(run + (folder_ / "none.npz").string()), HasSubstr("none.npz does not exist"));
  EXPECT_THAT(mistake(run + npz("a.npz", "z", test::ramp({2, 8}))), HasSubstr("no input 'z'; its inputs are: x"));
  EXPECT_THAT(mistake(run + npz("b.npz", "x", Tensor::zeros(DType::int64, {2, 8}))),
              HasSubstr("input 'x' has dtype int64, but the model needs float32"));
  EXPECT_THAT(mistake(run + npz("c.npz", "x", test::ramp({2, 9}))), HasSubstr("dimension 1 has extent 9"));
  EXPECT_THAT(mistake(run + npz("d.npz", "x", test::ramp({8}))), HasSubstr("'x' has 1 dimension"));
  write_npz(folder_ / "e.npz", {});
  EXPECT_EQ(tessera(run + (folder_ / "e.npz").string()).code, 2);
}

TEST_F(CommandLine, mistakes_in_sizes) {
  EXPECT_THAT(mistake("run " + model_ + " --shapes batch"), HasSubstr("'batch' is not a size"));
  EXPECT_THAT(mistake("run " + model_ + " --shapes time=3"), HasSubstr("no symbol 'time'; its symbols are: batch"));
  EXPECT_THAT(mistake("run " + model_ + " --shapes batch=2,batch=3"), HasSubstr("given twice"));
  std::string in = " --inputs " + npz("in.npz", "x", test::ramp({5, 8}));
  for (const char* command : {"run ", "verify --mesh tp=2 "}) {
    EXPECT_THAT(mistake(command + model_ + in + " --shapes batch=4"),
                HasSubstr("--shapes says batch=4, but the inputs' shapes say batch=5"));
    EXPECT_EQ(tessera(command + model_ + in + " --shapes batch=5").code, 0);
  }
}

TEST_F(CommandLine, mistakes_in_the_plan_file) {
  std::string plan = (folder_ / "plan.json").string(), run = "run " + model_ + " --mesh tp=2 --plan " + plan;
  EXPECT_THAT(mistake(run), HasSubstr("plan.json cannot be read"));
  testing_io::put(plan, R"({"preset": "megatron"})");
  EXPECT_THAT(mistake(run), HasSubstr("a plan has no key 'preset'; its keys are: mesh, presets"));
  testing_io::put(plan, "{");
  EXPECT_THAT(mistake(run), HasSubstr("is not JSON"));
}

TEST_F(CommandLine, mistakes_in_options_are_code_2_and_json_says_them) {
  EXPECT_THAT(mistake("run"), HasSubstr("see tessera run --help"));
  EXPECT_THAT(mistake("run " + model_ + " --nonsense"), HasSubstr("--nonsense"));
  EXPECT_THAT(mistake("frobnicate"),
              AllOf(HasSubstr("no command 'frobnicate'; the commands are: inspect, run, generate, train, shard"),
                    HasSubstr("see tessera --help")));
  EXPECT_THAT(mistake("--nonsense"), HasSubstr("see tessera --help"));
  for (const char* number : {"inf", "-1", "nan", "x"})
    EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --rtol=" + number),
                HasSubstr("must be a number of at least 0"));
  EXPECT_THAT(parsed("run " + model_ + " --mesh tp", 2)["error"], HasSubstr("[mesh]"));
  EXPECT_THAT(parsed("run " + model_ + " --nonsense", 2)["error"], HasSubstr("--nonsense"));
  EXPECT_THAT(mistake("verify " + model_), HasSubstr("--mesh"));
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --expected x.npz"), HasSubstr("--inputs"));
}

}  // namespace
}  // namespace tessera
