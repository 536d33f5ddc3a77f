#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "api/small_model.h"
#include "cli/run_command.h"
#include "tessera/io/npz.h"

// Runs the binary as a person would.
namespace tessera {
namespace {

using nlohmann::json;
using test::kPair;
using test::Ran;
using test::TemporaryFolder;
using test::write_model;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;

class CommandLine : public testing::Test {
 protected:
  // Words are for the shell: quote what it would read.
  Ran tessera(const std::string& words) {
    return test::run_command(std::string(TESSERA_BINARY) + " " + words, folder_);
  }

  // The message of a user's mistake.
  std::string mistake(const std::string& words) {
    Ran ran = tessera(words);
    EXPECT_EQ(ran.code, 2) << words << "\n" << ran.out << ran.err;
    EXPECT_EQ(ran.out, "") << words;
    return ran.err;
  }

  json parsed(const std::string& words, int code = 0) {
    Ran ran = tessera(words + " --json");
    EXPECT_EQ(ran.code, code) << words << "\n" << ran.err;
    json object = json::parse(ran.out, nullptr, false);
    EXPECT_TRUE(object.is_object()) << ran.out;
    return object;
  }

  std::string npz(const char* name, const std::string& array, Tensor tensor) {
    write_npz(folder_ / name, {{array, std::move(tensor)}});
    return (folder_ / name).string();
  }

  TemporaryFolder folder_;
  std::string model_ = write_model(folder_, kPair).string();
};

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
              AllOf(HasSubstr("float32 [batch, 8]"), HasSubstr("parameters: 512"), HasSubstr("unbound sizes: batch=2"),
                    HasSubstr("MatMul 2"), HasSubstr("coverage: all operators")));
  EXPECT_EQ(parsed("inspect " + model_)["parameters"], 512);
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

TEST_F(CommandLine, bench_says_where_the_time_went) {
  const std::string words = "bench " + model_ + " --mesh tp=2 --shapes batch=4 --iterations 5 --warmup 1";
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("throughput"), HasSubstr("p99"), HasSubstr("prepared in"), HasSubstr("a new shape"),
                    HasSubstr("floor"), HasSubstr("idle"), HasSubstr("all_reduce"), HasSubstr("MatMul")));
  json object = parsed(words);
  const json latency = object["latency_ms"];
  EXPECT_GT(latency["min"], 0);
  EXPECT_LE(latency["min"], latency["median"]);
  EXPECT_LE(latency["median"], latency["p90"]);
  EXPECT_LE(latency["p90"], latency["p99"]);
  EXPECT_GT(object["floor_ms"], 0);
  EXPECT_EQ(object["dtype"], "float32");
  for (const char* part : {"compile", "load", "bind"}) EXPECT_GT(object["prepare_ms"][part], 0) << part;
  ASSERT_EQ(object["ranks"].size(), 2u);
  for (const json& rank : object["ranks"]) {
    EXPECT_GT(rank["compute_ms"], 0);
    EXPECT_GE(rank["exposed_comm_ms"], 0);
    EXPECT_GE(rank["overlapped_ms"], 0);
    EXPECT_GE(rank["idle_ms"], 0);
    EXPECT_GT(rank["peak_bytes"], 0);
  }
  ASSERT_EQ(object["collectives"].size(), 1u);
  EXPECT_EQ(object["collectives"][0]["kind"], "all_reduce");
  EXPECT_EQ(object["collectives"][0]["count"], 1);
  EXPECT_GT(object["collectives"][0]["ms"], 0);
}

TEST_F(CommandLine, bench_writes_a_trace_with_a_track_per_rank) {
  const std::string trace = (folder_ / "trace.json").string();
  EXPECT_EQ(tessera("bench " + model_ + " --mesh tp=2 --iterations 2 --quiet --profile " + trace).code, 0);
  std::set<std::string> tracks;
  std::set<std::pair<int, std::string>> spans;
  const json written = json::parse(contents(trace));
  for (const json& event : written["traceEvents"])
    if (event["name"] == "thread_name")
      tracks.insert(event["args"]["name"]);
    else if (event["ph"] == "X")
      spans.emplace(event["tid"], event["cat"]);
  EXPECT_EQ(tracks, (std::set<std::string>{"rank 0", "rank 1"}));
  for (int rank : {0, 1})
    for (const char* category : {"compute", "communication"}) EXPECT_TRUE(spans.contains({rank, category}));
  EXPECT_THAT(mistake("bench " + model_ + " --iterations 1 --profile /nowhere/trace.json"), HasSubstr("/nowhere"));
}

TEST_F(CommandLine, bench_grows_a_size_at_each_run) {
  json object = parsed("bench " + model_ + " --mesh tp=2 --grow batch --iterations 20 --warmup 1");
  EXPECT_EQ(object["grow"], "batch");
  EXPECT_TRUE(parsed("bench " + model_ + " --iterations 1")["grow"].is_null());
  EXPECT_THAT(mistake("bench " + model_ + " --grow length"), AllOf(HasSubstr("'length'"), HasSubstr("batch")));
  EXPECT_THAT(mistake("bench " + model_ + " --grow batch --inputs none.npz"),
              AllOf(HasSubstr("--grow"), HasSubstr("--inputs"), HasSubstr("--shapes")));
}

// A row takes 4 KiB, so that the limit is 256 of them.
TEST_F(CommandLine, bench_grows_inputs_within_the_limit_on_memory) {
  const test::TemporaryFolder other;
  const std::string model =
      test::write_model(other, "most (float[batch, 1024] x) => (float y) { y = ReduceMax <keepdims = 0> (x) }")
          .string();
  const std::string words =
      "bench " + model + " --shapes batch=200 --grow batch --memory-limit 1M --quiet --iterations ";
  EXPECT_EQ(tessera(words + "20").code, 0);
  EXPECT_THAT(mistake(words + "100"), AllOf(HasSubstr("'x'"), HasSubstr("--memory-limit")));
}

TEST_F(CommandLine, bench_takes_written_programs_on_given_inputs) {
  const std::string out = (folder_ / "out").string(), in = npz("in.npz", "x", test::ramp({5, 8}));
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --quiet -o " + out).code, 0);
  json object = parsed("bench " + out + " --iterations 2 --inputs " + in);
  EXPECT_TRUE(object["floor_ms"].is_null()) << "the whole model's FLOPs are not in a written program";
  EXPECT_TRUE(object["prepare_ms"]["bind"].is_null());
  EXPECT_THAT(mistake("bench " + out), HasSubstr("give --inputs"));
  EXPECT_THAT(mistake("bench " + out + " --mesh tp=2 --inputs " + in), HasSubstr("written program"));
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
              AllOf(HasSubstr("of it weights"), HasSubstr("one rank")));
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
              HasSubstr("'*' matches 6 tensors, but none with 1 dimensions, as '[tp]' has entries: 'x' is [batch, 8], "
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

TEST_F(CommandLine, verify_passes_on_any_mesh) {
  for (const char* mesh : {"tp=1", "tp=2", "tp=5", "dp=2,tp=2"}) {
    json object = parsed("verify " + model_ + " --mesh " + mesh);
    EXPECT_EQ(object["pass"], true) << mesh;
    EXPECT_EQ(object["outputs"][0]["name"], "y");
    EXPECT_LE(object["outputs"][0]["max_rel"], 2e-5);
    EXPECT_TRUE(object["first_diverging"].is_null());
  }
}

TEST_F(CommandLine, verify_knows_the_precision_of_bfloat16) {
  EXPECT_EQ(parsed("verify " + model_ + " --mesh tp=2 --dtype bfloat16")["pass"], true);
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --dtype int8"), HasSubstr("bfloat16"));
}

TEST_F(CommandLine, every_command_knows_dtypes_by_all_their_names) {
  const std::string plan = (folder_ / "plan.json").string();
  for (const std::string command :
       {"run ", "verify ", "shard --dry-run ", "explain ", "bench --iterations 1 ", "check "}) {
    const std::string words = command + model_ + (command == "explain " ? " y" : "") + " --mesh tp=2 ";
    for (const std::string name : {"float32", "fp32", "bfloat16", "bf16"}) {
      EXPECT_EQ(tessera(words + "--dtype " + name).code, 0) << command << name;
      testing_io::put(plan, R"({"dtype": ")" + name + "\"}");
      EXPECT_EQ(tessera(words + "--plan " + plan).code, 0) << command << name;
    }
    for (const std::string name : {"fp16", "float16", "BF 16"})
      EXPECT_THAT(mistake(words + "--dtype '" + name + "'"),
                  AllOf(HasSubstr("--dtype: models compute in float32 (fp32) or bfloat16 (bf16)"), HasSubstr(name)));
  }
}

TEST_F(CommandLine, verify_wants_an_expectation_of_every_output) {
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), other = npz("other.npz", "z", test::ramp({2, 8}));
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --inputs " + in + " --expected " + other),
              HasSubstr("holds no 'y'"));
}

TEST_F(CommandLine, verify_says_no_by_code_1) {
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), wrong = npz("wrong.npz", "y", test::ramp({2, 8}));
  std::string words = "verify " + model_ + " --mesh tp=2 --inputs " + in + " --expected " + wrong;
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("FAIL"));
  json object = parsed(words, 1);
  EXPECT_EQ(object["pass"], false);
  EXPECT_GT(object["outputs"][0]["max_abs"], 0.1);
  EXPECT_EQ(tessera(words + " --atol 1000").code, 0);
}

TEST_F(CommandLine, verify_compares_the_tensors_that_it_is_told) {
  const std::string words = "verify " + model_ + " --mesh tp=2 --outputs ";
  json object = parsed(words + "hidden,y");
  EXPECT_EQ(object["outputs"].size(), 2u);
  EXPECT_EQ(object["outputs"][0]["name"], "hidden");
  std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --fetch active --outputs " + out).code, 0);
  EXPECT_EQ(read_npz(out).size(), 1u);
  EXPECT_EQ(read_npz(out).at("active").dims, (Dims{2, 32}));
  EXPECT_EQ(tessera(words + "active --inputs " + in + " --expected " + out).code, 0);
  EXPECT_THAT(mistake(words + "hiden"),
              HasSubstr("no node of the model makes a tensor 'hiden'; did you mean 'hidden'?"));
  EXPECT_THAT(mistake(words + "up"), HasSubstr("no node of the model makes a tensor 'up'"));
  EXPECT_THAT(mistake(words + "y,y"), HasSubstr("'y' is named twice"));
  const std::string written = (folder_ / "written").string();
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 -o " + written).code, 0);
  EXPECT_THAT(mistake("run " + written + " --inputs " + in + " --fetch y"), HasSubstr("leave out --fetch"));
}

// A Python of the test's: it takes what the command hands over, and gives `answers`.
class AgainstOnnxRuntime : public CommandLine {
 protected:
  Ran verify(const std::string& python_text, const std::string& words = "") {
    const std::string python = (folder_ / "python").string();
    testing_io::put(python, "#!/bin/sh\n" + python_text);
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    return test::run_command(
        "TESSERA_PYTHON=" + python + " " + TESSERA_BINARY + " verify " + model_ + " --against onnxruntime " + words,
        folder_);
  }
  std::string kept_ = (folder_ / "kept").string();  // what the command handed over
};

TEST_F(AgainstOnnxRuntime, compares_with_what_it_gives) {
  const std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --outputs " + out).code, 0);
  const std::string answer = "cp -r $3 " + kept_ + "\ncp " + out + " $3/outputs.npz\n";
  for (const char* mesh : {"", "--mesh tp=2"}) {
    std::filesystem::remove_all(kept_);
    Ran ran = verify(answer, std::string(mesh) + " --inputs " + in);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("against onnxruntime"), HasSubstr("\npass\n")));
  }
  EXPECT_EQ(read_npz(kept_ + "/inputs.npz").at("x").dims, (Dims{2, 8}));
  EXPECT_EQ(contents(kept_ + "/names.txt"), std::string("y\0", 2));
  EXPECT_EQ(contents(kept_ + "/added.txt"), "");
  Ran differs = verify("cp " + npz("wrong.npz", "y", test::ramp({2, 8})) + " $3/outputs.npz\n", "--inputs " + in);
  EXPECT_EQ(differs.code, 1) << differs.err;
  EXPECT_THAT(differs.out, HasSubstr("FAIL"));
}

TEST_F(AgainstOnnxRuntime, fetches_tensors_that_are_no_outputs) {
  const std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = (folder_ / "out.npz").string();
  ASSERT_EQ(tessera("run " + model_ + " --inputs " + in + " --fetch hidden,y --outputs " + out).code, 0);
  Ran ran = verify("cp -r $3 " + kept_ + "\ncp " + out + " $3/outputs.npz\n", "--outputs hidden,y --inputs " + in);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(contents(kept_ + "/names.txt"), std::string("hidden\0y\0", 9));
  EXPECT_EQ(contents(kept_ + "/added.txt"), std::string("hidden\0", 7));
}

TEST_F(AgainstOnnxRuntime, says_what_is_missing_and_how_to_mend_it) {
  Ran ran = verify("printf 'import\\nNo module named onnxruntime' > $3/problem.txt\nexit 1\n");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("/python' has no onnxruntime (No module named onnxruntime); install it there"),
                             HasSubstr("-m pip install onnxruntime"), HasSubstr("TESSERA_PYTHON")));
  ran = verify("printf 'run\\nno kernel for Frobnicate' > $3/problem.txt\nexit 1\n");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("it does not run '" + model_ + "': no kernel for Frobnicate"));
  ran = verify("echo first >&2\necho last >&2\nexit 5\n");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("ended with exit code 5 without an answer: last"));
  ran = test::run_command(
      "TESSERA_PYTHON=/nowhere/python " + std::string(TESSERA_BINARY) + " verify " + model_ + " --against onnxruntime",
      folder_);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("'/nowhere/python' cannot be started (No such file or directory)"));
  EXPECT_THAT(mistake("verify " + model_ + " --against tensorflow"), HasSubstr("onnxruntime"));
  EXPECT_THAT(mistake("verify " + model_ + " --against onnxruntime --expected x.npz"), HasSubstr("--expected"));
}

// Where the machine has it.
TEST_F(AgainstOnnxRuntime, agrees_with_the_real_one) {
  if (std::system("python3 -c 'import onnxruntime' >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 has no onnxruntime";
  for (const std::string name : {"gpt2", "bert", "mlp"}) {
    const std::string words =
        "verify " + std::string(TESSERA_TEST_DATA) + "/models/" + name + "/model.onnx --against onnxruntime";
    EXPECT_EQ(tessera(words).code, 0) << name;
    EXPECT_EQ(tessera(words + " --mesh tp=2 --first-diverging").code, 0) << name;
  }
}

TEST_F(CommandLine, verify_says_what_is_not_finite) {
  const std::string model = write_model(folder_, R"(
logs (float[batch, 8] x) => (float[batch, 8] y) { y = Log (x) })");
  std::string in = npz("in.npz", "x", Tensor::zeros(DType::float32, {2, 8}));
  std::string words = "verify " + model + " --mesh dp=2 --inputs " + in;
  Ran ran = tessera(words);
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("y: 16 of 16 elements are NaN or infinite, as expected; no number was compared"));
  EXPECT_EQ(parsed(words)["outputs"][0]["not_finite"], 16);
  std::string other = npz("other.npz", "y", test::ramp({2, 8}));
  ran = tessera(words + " --expected " + other + " --atol 1000");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("y: 16 of 16 elements are NaN or infinite in one answer only, the first at [0, 0]: " +
                                 std::string("-0.75 was expected, -inf came")));
}

TEST_F(CommandLine, shard_writes_functions_over_messages) {
  const std::string out = (folder_ / "lowered").string();
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 --lower=primitives --rank-id=input --quiet -o " + out).code, 0);
  EXPECT_THAT(tessera("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({5, 8}))).out, HasSubstr("send"));
  EXPECT_THAT(tessera("check " + out).out, HasSubstr("good"));
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2 --lower=magic -o " + out), HasSubstr("--lower"));
  EXPECT_THAT(mistake("shard " + model_ + " --mesh tp=2 --rank-type=opaque --rank-id=constant --lower=primitives -o " +
                      (folder_ / "no").string()),
              HasSubstr("a rank that is a handle cannot be folded in"));
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
  EXPECT_THAT(mistake("check --accept " + model_), HasSubstr("--accept is for a folder that tessera shard wrote"));
}

TEST_F(CommandLine, shard_refuses_what_other_engines_programs_cannot_have) {
  const std::string options = "shard " + model_ + " --mesh tp=2 -o " + (folder_ / "out").string();
  for (const char* dialect : {"ort", "tensorrt"}) {
    const std::string with = options + " --dialect=" + dialect;
    EXPECT_THAT(mistake(with + " --order=tokens"), HasSubstr("have --order=position only; leave out --order=tokens"));
    EXPECT_THAT(mistake(with + " --rank-id=input"), HasSubstr("have --rank-id=constant only; leave out"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(CommandLine, shard_fixes_sizes_where_blocks_must_be_equal) {
  const std::string out = (folder_ / "out").string();
  const std::string options = "shard " + model_ + " --mesh tp=2 --annotate 'hidden=[tp,-]' --annotate 'y=[-,-]'" +
                              " --dialect=tensorrt --quiet -o " + out;
  EXPECT_THAT(mistake(options), HasSubstr("if it is a size that is always the same, say it: --shapes batch="));
  EXPECT_THAT(mistake(options + " --shapes batch=5"), HasSubstr("blocks have 3, 2 elements"));
  ASSERT_EQ(tessera(options + " --shapes batch=6").code, 0);
  EXPECT_EQ(tessera("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({6, 8}))).code, 0);
  EXPECT_THAT(mistake("run " + out + " --inputs " + npz("in.npz", "x", test::ramp({4, 8}))),
              HasSubstr("dimension 0 has extent 4, but the model wants 6"));
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

TEST_F(CommandLine, mistakes_in_the_model) {
  EXPECT_THAT(mistake("inspect /nowhere/model.onnx"), HasSubstr("/nowhere/model.onnx"));
  testing_io::put(folder_ / "broken.onnx", "\xff\xff not a model");
  EXPECT_THAT(mistake("run " + (folder_ / "broken.onnx").string()), HasSubstr("broken.onnx"));
  TemporaryFolder other;
  std::string unknown =
      write_model(other, "g (float[4] x) => (float[4] y) { [odd] y = com.example.Frobnicate (x) }").string();
  EXPECT_THAT(mistake("run " + unknown), HasSubstr("Frobnicate"));
}

TEST_F(CommandLine, mistakes_in_the_mesh) {
  std::string run = "run " + model_;
  EXPECT_THAT(mistake(run + " --mesh tp"), HasSubstr("[mesh]"));
  EXPECT_THAT(mistake(run + " --mesh tp=two"), HasSubstr("'two' of axis 'tp' is no whole number"));
  EXPECT_THAT(mistake(run + " --mesh tp=0"), HasSubstr("a size is at least 1"));
  EXPECT_THAT(mistake(run + " --mesh tp=2,tp=2"), HasSubstr("'tp' is named twice"));
  EXPECT_THAT(mistake(run + " --mesh zz=2"), AllOf(HasSubstr("'zz' implies no preset"), HasSubstr("dp:zz")));
}

TEST_F(CommandLine, topology_makes_collectives_hierarchical) {
  std::string file = (folder_ / "cluster.json").string();
  testing_io::put(file, R"({"axes": {"tp": [{"size": 2, "alpha": 1e-6, "bandwidth": 5e9, "name": "memory"},
                                            {"size": 2, "alpha": 5e-5, "bandwidth": 1.25e8, "name": "ethernet"}]}})");
  const std::string mesh = " --mesh tp=4 --topology " + file;
  EXPECT_THAT(tessera("shard " + model_ + mesh + " --dry-run").out,
              HasSubstr("all-reduce over tp is hierarchical: 2 by memory, then 2 by ethernet; predicted"));
  EXPECT_THAT(tessera("explain " + model_ + mesh + " y").out,
              HasSubstr("by ReduceScatter tp:(2)2 + AllReduce tp:(1)2 + AllGather tp:(2)2"));
  EXPECT_THAT(tessera("run " + model_ + mesh + " --dump hierarchical").out, HasSubstr("axes = [\"tp:(1)2\"]"));
  EXPECT_EQ(parsed("verify " + model_ + mesh)["pass"], true);
  EXPECT_EQ(parsed("bench " + model_ + mesh + " --iterations 1")["collectives"].size(), 3u);
}

TEST_F(CommandLine, bench_comm_writes_the_links_that_planning_reads) {
  const std::string file = (folder_ / "cluster.json").string();
  json object = parsed(
      "bench comm --mesh dp=2,tp=4 --per-host 2 --max 4MiB --min 4KiB --seconds 0 "
      "--collectives all_reduce,all_gather,barrier -o " +
      file);
  std::set<std::string> groups;
  int copies = 0, barriers = 0, by_levels = 0;
  for (const json& entry : object["times"]) {
    EXPECT_GT(entry["seconds"], 0);
    copies += entry["collective"] == "copy";
    barriers += entry["collective"] == "barrier";
    by_levels += entry["collective"] == "all_reduce by levels";
    groups.insert(entry["axes"].dump() + " " + entry["ranks"].dump());
    if (entry["collective"] != "barrier") {
      EXPECT_GT(entry["floor_seconds"], 0);
    }
    if (entry["collective"] == "all_reduce") {
      const double n = entry["ranks"], bytes = entry["bytes"], seconds = entry["seconds"];
      EXPECT_NEAR(entry["bus_bandwidth"], 2 * (n - 1) / n * bytes / seconds, 1e-6 * bytes / seconds);
    }
  }
  EXPECT_EQ(copies, 6) << "4 KiB to 4 MiB by fours";
  EXPECT_EQ(groups, (std::set<std::string>{"[] 1", R"(["dp"] 2)", R"(["tp"] 4)", R"(["tp:(2)2"] 2)", R"(["tp:(1)2"] 2)",
                                           R"(["dp","tp"] 8)"}));
  EXPECT_EQ(barriers, 5) << "one a group, whatever the sizes";
  EXPECT_EQ(by_levels, 6) << "of tp, which crosses hosts";
  ASSERT_EQ(object["fits"].size(), 3u);
  EXPECT_EQ(object["fits"][0]["name"], "network") << "dp crosses hosts";
  EXPECT_EQ(object["fits"][1]["name"], "threads");
  EXPECT_EQ(object["fits"][2]["name"], "network");
  EXPECT_EQ(json::parse(contents(file))["axes"]["tp"].size(), 2u);
  EXPECT_EQ(tessera("shard " + model_ + " --mesh dp=2,tp=4 --dry-run --topology " + file).code, 0);
  EXPECT_THAT(tessera("bench comm --mesh tp=2 --max 1KiB --seconds 0 --collectives broadcast").out,
              AllOf(HasSubstr("  collective   axes"), HasSubstr("broadcast"), HasSubstr("1.0 KiB"),
                    HasSubstr("bus bandwidth")));
}

TEST_F(CommandLine, bench_comm_compares_with_times_of_others) {
  const std::string file = (folder_ / "times.txt").string();
  testing_io::put(file, "all_reduce 1024 7\nall_reduce 4096 8.5\n");
  const std::string words = "bench comm --mesh dp=2,tp=2 --collectives all_reduce --max 1KiB --seconds 0 --beside MPI=";
  json object = parsed(words + file);
  for (const json& entry : object["times"]) {
    const bool of_all = entry["ranks"] == 4;
    EXPECT_EQ(entry.contains("beside"), of_all) << entry;
    if (of_all) {
      EXPECT_DOUBLE_EQ(entry["beside"]["MPI"], 7e-6);
    }
  }
  EXPECT_THAT(tessera(words + file).out, AllOf(HasSubstr("MPI / time"), HasSubstr("7.0 µs")));
  EXPECT_THAT(mistake(words + "/nowhere"), HasSubstr("cannot read '/nowhere'; name a file of times"));
  testing_io::put(file, "all_reduce much\n");
  EXPECT_THAT(mistake(words + file), HasSubstr("has no lines of COLLECTIVE"));
}

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory
TEST_F(CommandLine, bench_comm_measures_processes) {
  const std::string file = (folder_ / "cluster.json").string();
  json object = parsed("bench comm --mesh tp=2 --spawn 2 --max 8MiB --seconds 0 --collectives all_reduce -o " + file);
  EXPECT_EQ(object["fits"][0]["name"], "processes");
  EXPECT_EQ(json::parse(contents(file))["axes"]["tp"][0]["size"], 2);
  EXPECT_THAT(mistake("bench comm --mesh tp=3 --spawn 2"),
              HasSubstr("the mesh 'tp=3' has 3 ranks, but 2 were started"));
}
#endif

TEST_F(CommandLine, mistakes_in_bench_comm) {
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --beside times.txt"), HasSubstr("write NAME=FILE"));
  EXPECT_THAT(mistake("bench"), HasSubstr("name an ONNX file, or a folder that tessera shard wrote; or comm"));
  EXPECT_THAT(mistake("bench comm"), HasSubstr("--mesh is required"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --collectives all_scatter"), HasSubstr("no collective 'all_scatter'"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --min 2KiB --max 1KiB"), HasSubstr("sizes from 2048 to 1024 bytes"));
  EXPECT_THAT(mistake("bench comm --mesh tp=6 --per-host 4"), HasSubstr("hosts of 4 ranks do not divide axis 'tp'"));
  EXPECT_THAT(mistake("bench comm --mesh tp=2 --max 1000TiB"), HasSubstr("give a smaller --max"));
  EXPECT_THAT(mistake("bench comm --mesh tp=300"), HasSubstr("at most 256"));
}

TEST_F(CommandLine, mistakes_in_the_topology) {
  std::string file = (folder_ / "cluster.json").string();
  testing_io::put(file, R"({"axes": {"tp": [{"size": 3, "alpha": 0, "bandwidth": 1}]}})");
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology " + file),
              HasSubstr("[topology] " + file + ": the levels of axis 'tp' join 3 ranks, but the mesh has tp=2"));
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology /nowhere.json"),
              HasSubstr("[topology] /nowhere.json cannot be read"));
  testing_io::put(file, "tp=2");
  EXPECT_THAT(mistake("run " + model_ + " --mesh tp=2 --topology " + file), HasSubstr("is no JSON"));
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
  EXPECT_THAT(mistake(run + "up"), HasSubstr("'up' is no annotation; write NAME=[d, …]"));
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
              HasSubstr("input 'x' has dtype int64, but the model wants float32"));
  EXPECT_THAT(mistake(run + npz("c.npz", "x", test::ramp({2, 9}))), HasSubstr("dimension 1 has extent 9"));
  EXPECT_THAT(mistake(run + npz("d.npz", "x", test::ramp({8}))), HasSubstr("'x' has 1 dimensions"));
  write_npz(folder_ / "e.npz", {});
  EXPECT_EQ(tessera(run + (folder_ / "e.npz").string()).code, 2);
}

TEST_F(CommandLine, mistakes_in_sizes) {
  EXPECT_THAT(mistake("run " + model_ + " --shapes batch"), HasSubstr("'batch' is no size"));
  EXPECT_THAT(mistake("run " + model_ + " --shapes time=3"), HasSubstr("no symbol 'time'; its symbols are: batch"));
  EXPECT_THAT(mistake("run " + model_ + " --shapes batch=2,batch=3"), HasSubstr("given twice"));
  std::string in = " --inputs " + npz("in.npz", "x", test::ramp({5, 8}));
  for (const char* command : {"run ", "verify --mesh tp=2 "}) {
    EXPECT_THAT(mistake(command + model_ + in + " --shapes batch=4"),
                HasSubstr("--shapes says batch=4, but dimension 0 of the input 'x' is 5"));
    EXPECT_EQ(tessera(command + model_ + in + " --shapes batch=5").code, 0);
  }
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
    EXPECT_THAT(mistake(command + out),
                HasSubstr("is a written program, which `tessera run`, `check` and `bench` take"))
        << command;
  std::filesystem::remove(folder_ / "out/weights/0.bin");
  EXPECT_THAT(mistake("run " + out + x), HasSubstr("weights/0.bin' is missing"));
}

TEST_F(CommandLine, outputs_that_cannot_be_written_stop_it_before_the_run) {
  EXPECT_THAT(mistake("run " + model_ + " --outputs /nowhere/out.npz"), HasSubstr("/nowhere/out.npz"));
  EXPECT_THAT(mistake("run " + model_ + " --outputs " + folder_.path().string()), HasSubstr("[write]"));
}

TEST_F(CommandLine, mistakes_in_the_plan_file) {
  std::string plan = (folder_ / "plan.json").string(), run = "run " + model_ + " --mesh tp=2 --plan " + plan;
  EXPECT_THAT(mistake(run), HasSubstr("plan.json cannot be read"));
  testing_io::put(plan, R"({"preset": "megatron"})");
  EXPECT_THAT(mistake(run), HasSubstr("a plan has no key 'preset'; its keys are: mesh, presets"));
  testing_io::put(plan, "{");
  EXPECT_THAT(mistake(run), HasSubstr("is no JSON"));
}

TEST_F(CommandLine, mistakes_in_options_are_code_2_and_json_says_them) {
  EXPECT_THAT(mistake("run"), HasSubstr("see tessera run --help"));
  EXPECT_THAT(mistake("run " + model_ + " --nonsense"), HasSubstr("--nonsense"));
  EXPECT_THAT(mistake("frobnicate"), AllOf(HasSubstr("no command 'frobnicate'; the commands are: inspect, run, shard"),
                                           HasSubstr("see tessera --help")));
  EXPECT_THAT(mistake("--nonsense"), HasSubstr("see tessera --help"));
  for (const char* number : {"inf", "-1", "nan", "x"})
    EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --rtol=" + number), HasSubstr("is no number from 0 on"));
  EXPECT_THAT(parsed("run " + model_ + " --mesh tp", 2)["error"], HasSubstr("[mesh]"));
  EXPECT_THAT(parsed("run " + model_ + " --nonsense", 2)["error"], HasSubstr("--nonsense"));
  EXPECT_THAT(mistake("verify " + model_), HasSubstr("--mesh"));
  EXPECT_THAT(mistake("verify " + model_ + " --mesh tp=2 --expected x.npz"), HasSubstr("--inputs"));
}

TEST_F(CommandLine, output_that_does_not_arrive_is_a_failure) {
  for (const char* words : {"info", "--help", "info --json"}) {
    int status = std::system((std::string(TESSERA_BINARY) + " " + words + " >/dev/full 2>/dev/null").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 3) << words;
  }
}

}  // namespace
}  // namespace tessera
