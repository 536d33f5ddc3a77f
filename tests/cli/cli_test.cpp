// The commands, as a person would run them.
#include "cli/command_line.h"
#include "sample.h"

namespace tessera {
namespace {

TEST_F(CommandLine, help_and_version_are_good) {
  Ran help = tessera("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"inspect", "run", "bench", "shard", "verify", "explain", "info"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_EQ(tessera("run --help").code, 0);
  EXPECT_THAT(tessera("--version").out, HasSubstr("tessera "));
}

TEST_F(CommandLine, info_lists_presets) {
  EXPECT_THAT(tessera("info").out, AllOf(HasSubstr("megatron"), HasSubstr("engines:")));
  EXPECT_GE(parsed("info")["presets"].size(), 3u);
}

TEST_F(CommandLine, inspect_shows_the_model) {
  Ran ran = tessera("inspect " + model_);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("float32 [batch, 8]"), HasSubstr("parameters: 512"), HasSubstr("default sizes: batch=2"),
                    HasSubstr("MatMul 2"), HasSubstr("coverage: all operators")));
  EXPECT_EQ(parsed("inspect " + model_)["parameters"], 512);
}

// Wherever a model is taken, its text is.
TEST_F(CommandLine, models_may_be_text) {
  const std::string text = (folder_ / "pair.onnxtxt").string(), out = (folder_ / "out").string();
  testing_io::put(text, std::string(kPair));
  for (const std::string& words :
       {"inspect " + text, "run " + text + " --mesh tp=2", "verify " + text + " --mesh tp=2",
        "explain " + text + " --mesh tp=2 y", "shard " + text + " --mesh tp=2 -o " + out, "check " + out,
        "shard " + text + " --mesh tp=? -o " + out + ".onnx", "run " + out + ".onnx --mesh tp=2"}) {
    const Ran ran = tessera(words);
    EXPECT_EQ(ran.code, 0) << words << "\n" << ran.err;
  }
}

TEST_F(CommandLine, run_writes_whole_outputs) {
  std::string in = npz("in.npz", "x", test::ramp({5, 8})), out = (folder_ / "out.npz").string();
  Ran ran = tessera("run " + model_ + " --mesh tp=2 --inputs " + in + " --outputs " + out);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("mesh tp=2 (2 ranks)"), HasSubstr("preset megatron:tp (implied by the mesh)"),
                             HasSubstr("all_reduce")));
  EXPECT_EQ(read_npz(out).at("y").dims, (Dims{5, 8}));
  EXPECT_EQ(tessera("verify " + model_ + " --mesh tp=3 --inputs " + in + " --expected " + out).code, 0);
}

TEST_F(CommandLine, quiet_silences_what_nobody_asked_for) {
  const std::string out = (folder_ / "out").string();
  for (const std::string& words : {"run " + model_ + " --mesh tp=2", "shard " + model_ + " --mesh tp=2 -o " + out,
                                   "shard " + model_ + " --mesh tp=? -o " + out + ".onnx"}) {
    Ran ran = tessera(words + " --quiet");
    EXPECT_EQ(ran.code, 0) << words;
    EXPECT_EQ(ran.out + ran.err, "") << words;
  }
}

TEST_F(CommandLine, quiet_leaves_the_answer) {
  for (const std::string& words :
       {"inspect " + model_, "inspect --weights " + model_, "explain " + model_ + " --mesh tp=2 y", std::string("info"),
        "shard " + model_ + " --mesh tp=2 --dry-run", "shard " + model_ + " --mesh dp=64 --dry-run",
        "verify " + model_ + " --mesh tp=2", "check " + model_ + " --mesh tp=2", "run " + model_ + " --dump=list"}) {
    const Ran loud = tessera(words), quiet = tessera(words + " --quiet");
    EXPECT_EQ(quiet.code, 0) << words;
    EXPECT_EQ(quiet.err, "") << words;
    std::string answer;
    std::istringstream lines(loud.out);
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with("note: ")) answer += line + "\n";
    EXPECT_NE(answer, "") << words;
    EXPECT_EQ(quiet.out, answer) << words;
    EXPECT_EQ(parsed(words + " --quiet"), parsed(words)) << words;
  }
  EXPECT_THAT(tessera("bench " + model_ + " --iterations 1 --quiet").out, HasSubstr("throughput"));
  EXPECT_THAT(tessera("bench comm --mesh tp=2 --max 1KiB --seconds 0 --collectives broadcast --quiet").out,
              HasSubstr("broadcast"));
}

TEST_F(CommandLine, shapes_in_json_hold_numbers) {
  const json shape = {"batch", 8};
  EXPECT_EQ(parsed("inspect " + model_)["inputs"][0]["shape"], shape);
  EXPECT_EQ(parsed("shard " + model_ + " --mesh tp=2 --dry-run")["outputs"][0]["shape"], shape);
  EXPECT_EQ(parsed("explain " + model_ + " --mesh tp=2 up")["shape"], json({8, 32}));
  EXPECT_EQ(parsed("run " + model_ + " --shapes batch=3")["outputs"][0]["shape"], json({3, 8}));
}

TEST_F(CommandLine, tables_fit_80_columns) {
  TemporaryFolder other;
  const std::string long_name = "m.transformer.encoder.layers.0.self_attention.a_projection_with_a_long_name.weight";
  const std::string model =
      write_model(other,
                  "<ir_version: 10, opset_import: [\"\" : 24]> long (float[batch, 8] x) => (float[batch, 8] "
                  "\"output.of.a.model.that.somebody.wrote.with.very.long.names\") <float[8, 32] \"" +
                      long_name +
                      "\", float[32, 8] down> { [node_of_a_long_name_0123456789_and_more] hidden = MatMul (x, \"" +
                      long_name +
                      "\") active = Relu (hidden) "
                      "\"output.of.a.model.that.somebody.wrote.with.very.long.names\" = MatMul (active, down) }")
          .string();
  const std::string orders = " --annotate '" + long_name + "=[-,tp]' --annotate 'active=[-,-]'";
  for (const std::string& words : {"shard " + model + " --mesh tp=2 --dry-run" + orders, "inspect --weights " + model,
                                   "verify " + model + " --mesh tp=2", "run " + model + " --mesh tp=2",
                                   "bench " + model + " --mesh tp=2 --iterations 1 --quiet"}) {
    Ran ran = tessera(words);
    EXPECT_EQ(ran.code, 0) << words << ran.err;
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("  ")) {
        const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
        EXPECT_LE(columns, 80) << words << "\n" << line;
      }
  }
  EXPECT_THAT(tessera("shard " + model + " --mesh tp=2 --dry-run" + orders).out, HasSubstr("AllGather tp"));
}

TEST_F(CommandLine, inspect_lists_weights_by_name) {
  EXPECT_THAT(tessera("inspect --weights " + model_).out,
              AllOf(HasSubstr("up          float32 [8, 32]   1.0 KiB   MatMul"), HasSubstr("down")));
  const json weights = parsed("inspect --weights " + model_)["weights"];
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0],
            json({{"name", "up"}, {"dtype", "float32"}, {"shape", {8, 32}}, {"bytes", 1024}, {"used_by", {"MatMul"}}}));
  EXPECT_FALSE(parsed("inspect " + model_).contains("weights"));
}

TEST_F(CommandLine, dry_run_shows_one_rank_beside_the_mesh) {
  json object = parsed("shard " + model_ + " --mesh tp=2 --dry-run");
  EXPECT_EQ(object["one_rank"]["parameter_bytes"], 2048);
  EXPECT_EQ(object["one_rank"]["flops"], 2 * 2 * (2 * 8 * 32) + 2 * 32) << "two products and a Relu";
  EXPECT_GT(object["one_rank"]["peak_bytes"], object["ranks"][0]["peak_bytes"]);
  for (const json& rank : object["ranks"]) {
    EXPECT_EQ(rank["parameter_bytes"], 1024);
    EXPECT_EQ(rank["flops"], 2 * (2 * 8 * 32) + 32);
  }
  EXPECT_THAT(tessera("shard " + model_ + " --mesh tp=2 --dry-run").out,
              AllOf(HasSubstr("of that, weights"), HasSubstr("one rank")));
}

TEST_F(CommandLine, ranks_without_work_are_named) {
  const std::string plan = "shard " + model_ + " --dry-run --mesh ";
  EXPECT_THAT(
      tessera(plan + "dp=4096").err,
      HasSubstr(
          "warning: 4094 of the 4096 ranks, at dp=2 to dp=4095, idle: MatMul producing 'hidden' is split along batch "
          "= 2 only; give dp fewer ranks, or larger --shapes"));
  EXPECT_THAT(tessera(plan + "tp=1024").err, HasSubstr("992 of the 1024 ranks, at tp=32 to tp=1023, idle"));
  EXPECT_EQ(parsed(plan + "dp=4096")["warnings"].size(), 1u);
  EXPECT_EQ(parsed(plan + "dp=4096 --shapes batch=4096")["warnings"].size(), 0u);
}

TEST_F(CommandLine, wildcards_reach_what_has_as_many_dimensions) {
  const std::string models = std::string(TESSERA_TEST_DATA) + "/models/";
  for (const std::string name : {"gpt2", "bert", "llama"})
    for (const std::string entries : {"[tp]", "[-,tp]", "[?,tp,?]"})
      EXPECT_EQ(tessera("verify " + models + name + "/model.onnx --mesh tp=2 --annotate '*=" + entries + "'").code, 0)
          << name << entries;
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --annotate '*=[tp]'"),
              HasSubstr("'*' matches 6 tensors, but none with 1 dimension, as '[tp]' has entries: 'x' is [batch, 8], "
                        "'up' is [8, 32], 'down' is [32, 8], …; write one entry per dimension"));
}

TEST_F(CommandLine, json_of_run_has_peaks_and_outputs) {
  json object = parsed("run " + model_ + " --mesh tp=2 --shapes batch=8");
  EXPECT_EQ(object["outputs"][0]["shape"], json({8, 8}));
  EXPECT_EQ(object["ranks"].size(), 2u);
  EXPECT_GT(object["ranks"][0]["peak_bytes"], 0);
}

TEST_F(CommandLine, dump_prints_a_stage) {
  Ran ran = tessera("run " + model_ + " --mesh tp=2 --quiet --dump=import --dump=partition");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("# after import"), HasSubstr("tessera.comm.AllReduce")));
  EXPECT_THAT(tessera("run " + model_ + " --dump=list").out, AllOf(HasSubstr("import"), HasSubstr("partition")));
  EXPECT_THAT(mistake("run " + model_ + " --dump=nonsense"), HasSubstr("there is no stage 'nonsense'"));
  EXPECT_THAT(parsed("shard " + model_ + " --mesh tp=2 --dry-run --dump=partition")["dump"]["partition"],
              HasSubstr("AllReduce"));
}

// A row of a parameter of codes, in another shape: it is packed once, as a whole parameter is.
TEST_F(CommandLine, packs_parts_of_weights_of_codes) {
  std::string elements;
  for (int i = 0; i < 256; ++i) elements += (i == 0 ? "" : ", ") + std::to_string(i % 7 - 3);
  testing_io::put(folder_ / "rows.onnxtxt", R"(<ir_version: 10, opset_import: ["": 23]>
g (uint8[2, 8] x) => (int32[2, 16] y) <int8[2, 8, 16] w = {)" +
                                                elements + R"(}> {
  one = Constant <value = int64[1] {1}> ()
  two = Constant <value = int64[1] {2}> ()
  shape = Constant <value = int64[2] {8, 16}> ()
  zero = Constant <value = int64[1] {0}> ()
  row = Slice (w, one, two, zero)
  matrix = Reshape (row, shape)
  y = MatMulInteger (x, matrix)
})");
  const std::string in = (folder_ / "x.npz").string(), out = (folder_ / "y.npz").string();
  const Tensor x = Tensor::of<uint8_t>(DType::uint8, {2, 8}, {1, 0, 0, 0, 0, 0, 0, 0, 255, 1, 2, 3, 4, 5, 6, 7});
  write_npz(in, {{"x", x}});
  const Ran ran =
      tessera("run " + (folder_ / "rows.onnxtxt").string() + " --dump machine --inputs " + in + " --outputs " + out);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("MatMulInteger"), HasSubstr("fixed uint8["), Not(HasSubstr("fixed int8[8,16]"))))
      << ran.err;
  const Tensor y = read_npz(out).at("y");
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t c = 0; c < 16; ++c) {
      int expected = 0;
      for (int64_t k = 0; k < 8; ++k)
        expected += static_cast<int>(x.as<uint8_t>()[r * 8 + k]) * static_cast<int>((128 + k * 16 + c) % 7 - 3);
      EXPECT_EQ(y.as<int32_t>()[r * 16 + c], expected) << r << ", " << c;
    }
}

TEST_F(CommandLine, dump_prints_the_machine_program) {
  const std::string run = "run " + model_ + " --mesh tp=2 --quiet --dump=machine";
  EXPECT_THAT(tessera(run).out, AllOf(HasSubstr("rank 0 of tp=2"), HasSubstr("start AllReduce<tp>"),
                                      HasSubstr("flops="), HasSubstr("buffer 0: ")));
  EXPECT_THAT(tessera(run + " --rank 1 --device simulated").out,
              AllOf(HasSubstr("rank 1 of tp=2"), HasSubstr("on the queue of tp")));
  EXPECT_THAT(parsed("shard " + model_ + " --mesh tp=2 --dry-run --dump=machine")["dump"]["machine"],
              HasSubstr("arena "));
  EXPECT_THAT(parsed("shard " + model_ + " --mesh tp=2 --dry-run --dump=machine --device simulated")["dump"]["machine"],
              HasSubstr("on 'simulated'"));
  EXPECT_THAT(mistake(run + " --rank 2"), HasSubstr("the mesh has no rank 2; its ranks are 0 to 1"));
}

TEST_F(CommandLine, ranks_compute_on_the_device_that_is_named) {
  for (const char* ranks : {"", " --spawn 2"})
    EXPECT_EQ(tessera("verify " + model_ + " --mesh tp=2 --device simulated" + ranks).code, 0) << ranks;
  EXPECT_THAT(mistake("run " + model_ + " --quiet --mesh tp=2 --device simulated:1x1G"),
              HasSubstr("'simulated:1x1G' is a machine with 1 device, but its rank 1 (from 0)"));
  EXPECT_THAT(mistake("run " + model_ + " --device tpu"), HasSubstr("'tpu' must be one of cpu, simulated"));
}

TEST_F(CommandLine, every_command_knows_dtypes_by_all_their_names) {
  const std::string plan = (folder_ / "plan.json").string();
  for (const std::string command :
       {"run ", "verify ", "shard --dry-run ", "explain ", "bench --iterations 1 ", "check "}) {
    const std::string words = command + model_ + (command == "explain " ? " y" : "") + " --mesh tp=2 ";
    std::vector<std::string> names = {"float32", "fp32", "bfloat16", "bf16", "float16", "fp16"};
    if (command != "run " && !test::tries_all()) names = {"bf16"};  // all commands read them alike
    for (const std::string& name : names) {
      EXPECT_EQ(tessera(words + "--dtype " + name).code, 0) << command << name;
      testing_io::put(plan, R"({"dtype": ")" + name + "\"}");
      EXPECT_EQ(tessera(words + "--plan " + plan).code, 0) << command << name;
    }
    std::vector<std::string> others = {"int8", "float64", "BF 16"};
    if (command != "run " && !test::tries_all()) others = {"int8"};
    for (const std::string& name : others)
      EXPECT_THAT(mistake(words + "--dtype '" + name + "'"),
                  AllOf(HasSubstr("--dtype: models compute in float32 (fp32), bfloat16 (bf16) or float16 (fp16)"),
                        HasSubstr(name)));
  }
}

TEST_F(CommandLine, shard_writes_functions_over_messages) {
  const std::string out = (folder_ / "lowered").string();
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --lower=primitives --rank-id=input --quiet -o " + out).code, 0);
  EXPECT_THAT(tessera("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({5, 8}))).out, HasSubstr("send"));
  EXPECT_THAT(tessera("check " + out).out, HasSubstr("good"));
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2 --lower=magic -o " + out), HasSubstr("--lower"));
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2 --rank-type=opaque --rank-id=constant --lower=primitives -o " +
                      (folder_ / "no").string()),
              HasSubstr("a rank that is a handle cannot be a constant"));
}

TEST_F(CommandLine, check_takes_over_models_that_are_saved_anew) {
  const std::string out = (folder_ / "out").string(), file = out + "/rank_0.onnx";
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 -o " + out).code, 0);
  std::ofstream(file, std::ios::app) << "\x32\x02hi";  // a doc_string
  EXPECT_THAT(mistake("run " + out), HasSubstr("tessera check --accept '" + out + "'"));
  const json found = parsed("check " + out);
  EXPECT_EQ(found["changed"], json({"rank_0.onnx"}));
  EXPECT_EQ(found["accepted"], false);
  EXPECT_THAT(tessera("check " + out).out, HasSubstr("rank_0.onnx has changed since the program was written"));
  EXPECT_EQ(parsed("check --accept " + out)["accepted"], true);
  EXPECT_EQ(tessera("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({5, 8}))).code, 0);
  std::filesystem::resize_file(file, 100);
  for (const std::string command : {"check ", "check --accept "}) {
    const Ran refused = tessera(command + out);
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.out, AllOf(HasSubstr("rank_0.onnx has changed"), HasSubstr("program: "), HasSubstr("WRONG")));
  }
  EXPECT_THAT(mistake("check --accept " + model_), HasSubstr("--accept is for a folder that tessera shard wrote"));
}

TEST_F(CommandLine, shard_refuses_what_other_engines_programs_cannot_have) {
  const std::string options = "shard " + model_ + " --mesh tp=2 -o " + (folder_ / "out").string();
  for (const char* dialect : {"ort", "tensorrt"}) {
    const std::string with = options + " --dialect=" + dialect;
    EXPECT_THAT(mistake(with + " --order=tokens"), HasSubstr("requires --order=position; leave out --order=tokens"));
    EXPECT_THAT(mistake(with + " --rank-id=input"), HasSubstr("requires --rank-id=constant; leave out"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(CommandLine, shard_fixes_sizes_where_blocks_must_be_equal) {
  const std::string out = (folder_ / "out").string();
  const std::string options = "shard " + model_ + " --mesh tp=2 --annotate 'hidden=[tp,-]' --annotate 'y=[-,-]'" +
                              " --dialect=tensorrt --quiet -o " + out;
  EXPECT_THAT(mistake(options), HasSubstr("if this size is always the same, give it with --shapes batch="));
  EXPECT_THAT(mistake(options + " --shapes batch=5"), HasSubstr("blocks have 3, 2 elements"));
  ASSERT_EQ(tessera(options + " --shapes batch=6").code, 0);
  EXPECT_EQ(tessera("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({6, 8}))).code, 0);
  EXPECT_THAT(mistake("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({4, 8}))),
              HasSubstr("dimension 0 has extent 4, but the model needs 6"));
}

TEST_F(CommandLine, shard_writes_a_program_for_sizes_of_one) {
  const std::string model = write_model(folder_, R"(
meeting (float[s, 8] x, float[t, 8] z) => (float[n, 8] y) { y = Add (x, z) })")
                                .string();
  const std::string inputs = (folder_ / "in.npz").string();
  write_npz(inputs, {{"x", test::ramp({1, 8})}, {"z", test::ramp({5, 8})}});
  EXPECT_EQ(tessera("run " + model + " --mesh dp=2 --inputs " + inputs).code, 0);
  const std::string equal = (folder_ / "equal").string(), one = (folder_ / "one").string();
  const Ran written = tessera("shard " + model + " --mesh dp=2 -o " + equal);
  EXPECT_THAT(written.out, AllOf(HasSubstr("it runs at sizes with"), HasSubstr("s = t (Add")));
  EXPECT_THAT(mistake("run " + equal + " --inputs " + inputs), HasSubstr("tessera shard --fix s=1"));
  ASSERT_EQ(tessera("shard " + model + " --mesh dp=2 --fix s=1 -o " + one).code, 0);
  EXPECT_EQ(tessera("run " + one + " --inputs " + inputs).code, 0);
}

TEST_F(CommandLine, an_open_mesh_has_no_form_yet) {
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=? --form=spmd --lower=primitives -o " +
                      (folder_ / "annotated.onnx").string()),
              HasSubstr("leave out --form, --lower until"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "annotated.onnx"));
}

TEST_F(CommandLine, shard_prints_the_plan_of_a_huge_mesh) {
  json object = parsed("shard " + model_ + " --mesh tp=4,dp=4096 --shapes batch=8192 --dry-run");
  EXPECT_EQ(object["collectives"][0]["kind"], "all_reduce");
  EXPECT_EQ(object["collectives"][0]["axes"], json({"tp"}));
  EXPECT_EQ(object["collectives"][0]["count"], 1);
  EXPECT_GT(object["collectives"][0]["bytes"], 0);
  EXPECT_EQ(object["reshards"].size(), 1u);
  EXPECT_EQ(object["ranks"][0]["rank"], 0);
  EXPECT_GT(object["ranks"][0]["peak_bytes"], 0);
  EXPECT_THAT(tessera("shard " + model_ + " --mesh tp=2 --dry-run").out, HasSubstr("all_reduce"));
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2"), HasSubstr("--dry-run"));
}

TEST_F(CommandLine, explain_says_who_split_a_tensor) {
  Ran ran = tessera("explain " + model_ + " --mesh tp=2 up");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("up: float32 [8, 32] over tp=2"), HasSubstr("gets tp from")));
  EXPECT_THAT(tessera("explain " + model_ + " --mesh tp=2 y").out, HasSubstr("by AllReduce tp"));
  EXPECT_GE(parsed("explain " + model_ + " --mesh tp=2 hidden")["places"].size(), 2u);
}

TEST_F(CommandLine, options_come_before_the_plan_file) {
  std::string plan = (folder_ / "plan.json").string();
  testing_io::put(plan, R"({"mesh": "tp=2", "annotations": ["up=[-,-]", "down=[-,tp]"]})");
  EXPECT_THAT(tessera("explain " + model_ + " --plan " + plan + " down").out, HasSubstr("plan file"));
  Ran ran = tessera("explain " + model_ + " --plan " + plan + " --annotate 'down=[tp,-]' down");
  EXPECT_THAT(ran.out, HasSubstr("dimension 0 gets tp from annotation"));
}

TEST_F(CommandLine, written_program_gives_the_model_s_answer_on_its_own_mesh) {
  std::string out = (folder_ / "out").string(),
              x = " --inputs " + npz("x.npz", "x", Tensor::zeros(DType::float32, {2, 8}));
  std::string direct = (folder_ / "direct.npz").string(), again = (folder_ / "again.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --mesh tp=2" + x + " --outputs " + direct).code, 0);
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 -o " + out).code, 0);
  Ran ran = tessera("run " + out + x + " --outputs " + again);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(contents(again), contents(direct));
  for (const char* option : {" --mesh tp=4", " --shapes batch=2", " --dump=partition"})
    EXPECT_THAT(mistake("run " + out + option + x), HasSubstr("is a written program")) << option;
  for (const char* command : {"inspect ", "verify --mesh tp=2 ", "shard --mesh tp=2 --dry-run "})
    EXPECT_THAT(mistake(command + out), HasSubstr("is a written program, for tessera run, check or bench")) << command;
  std::filesystem::remove(folder_ / "out/weights/0.bin");
  EXPECT_THAT(mistake("run " + out + x), HasSubstr("weights/0.bin' is missing"));
}

TEST_F(CommandLine, outputs_that_cannot_be_written_stop_it_before_the_run) {
  EXPECT_THAT(mistake("run " + model_ + " --outputs /nowhere/out.npz"), HasSubstr("/nowhere/out.npz"));
  EXPECT_THAT(mistake("run " + model_ + " --outputs " + folder_.path().string()), HasSubstr("[write]"));
}

TEST_F(CommandLine, output_that_does_not_arrive_is_a_failure) {
  for (const char* words : {"info", "--help", "info --json"}) {
    int status = std::system((std::string(TESSERA_BINARY) + " " + words + " >/dev/full 2>/dev/null").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 3) << words;
  }
}

// A tensor that is taken whole where it was split is listed with the reason.
TEST_F(CommandLine, shard_says_why_a_tensor_is_gathered) {
  const std::string square = (folder_ / "square.onnxtxt").string();
  testing_io::put(square, R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4, 8, 8] x) => (float[4] y) {
      r = Relu (x)
      y = Det (r)
    })");
  const std::string words = "shard --dry-run --mesh tp=2 --annotate 'r=[-,tp,-]' " + square;
  EXPECT_EQ(parsed(words)["reshards"][0]["reason"], "the operator needs dimension 1 whole");
  EXPECT_THAT(tessera(words).out, HasSubstr("the operator needs"));
  const std::string product = "shard --dry-run --mesh tp=2 --annotate 'hidden=[-,tp]' --annotate 'x=[-,tp]' " + model_;
  EXPECT_EQ(parsed(product)["reshards"][0]["reason"], "tp splits dimension 1 of 'up' there");
}

}  // namespace
}  // namespace tessera
