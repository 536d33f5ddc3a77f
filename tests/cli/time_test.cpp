// Predicted times, as a person asks for them.
#include <set>

#include "cli/command_line.h"
#include "cli/launchers.h"
#include "tessera/files.h"

namespace tessera {
namespace {

class Time : public CommandLine {
 protected:
  std::string file(const char* name, const std::string& text) {
    write_file(folder_ / name, text);
    return (folder_ / name).string();
  }
};

TEST_F(Time, SimulatesAMeshOfAnySize) {
  const json found = parsed("simulate " + model_ + " --mesh dp=512,tp=8 --cluster h100-sxm --shapes batch=4096");
  const json& predicted = found["predicted"];
  EXPECT_EQ(predicted["machine"], "H100-SXM");
  EXPECT_GT(predicted["step_ms"], 0);
  EXPECT_GE(predicted["step_ms"], predicted["bound_ms"]);
  EXPECT_EQ(predicted["extrapolated"], 1);
  int64_t ranks = 0;
  for (const json& each : predicted["classes"]) ranks += each["count"].get<int64_t>();
  EXPECT_EQ(ranks, 4096);
  EXPECT_LE(predicted["classes"].size(), 8U);
}

TEST_F(Time, SimulatesATrainingStep) {
  const json found =
      parsed("simulate " + model_ + " --train --loss mse --mesh dp=4 --preset zero1 --cluster a100-80gb" +
             " --shapes batch=64");
  EXPECT_GT(found["predicted"]["step_ms"], 0);
  EXPECT_GT(found["peak_bytes"], 0);
  EXPECT_THAT(mistake("simulate " + model_ + " --optimizer sgd --cluster a100-80gb"), HasSubstr("--train"));
}

TEST_F(Time, AShardSaysWhatItTakesOnACluster) {
  const json found = parsed("shard " + model_ + " --mesh tp=4 --dry-run --cluster h100-sxm --shapes batch=64");
  EXPECT_GT(found["predicted"]["step_ms"], 0);
  EXPECT_THAT(tessera("shard " + model_ + " --mesh tp=4 --dry-run --cluster h100-sxm").out,
              AllOf(HasSubstr("predicted for H100-SXM"), HasSubstr("what the step waited for")));
}

// Two products of 1.1 ms on each rank, and links that take as long.
TEST_F(Time, ReportsWhatIsOverlappedAndWhatIsNot) {
  const std::string pair = file("pair.onnxtxt", R"(<ir_version: 10, opset_import: ["" : 21]>
m (float[1024, 1024] x) => (float[1024, 1024] y) <float[1024, 1024] v, float[1024, 1024] w> {
  h = MatMul (x, v)
  a = Relu (h)
  y = MatMul (a, w)
})");
  const std::string machine = file("m.json", R"({"name": "made up", "device": "simulated", "kernel": 1e-6,
    "products": {"float32": {"flops": 5e11}}, "bandwidths": [{"bytes_per_second": 1e12}],
    "links": [{"name": "link", "alpha": 1e-6, "bandwidth": 2.9e9}]})");
  const std::string words = "simulate " + pair + " --mesh t=4 --annotate 'x=[t,-]' --annotate 'v=[-,t]'" +
                            " --annotate 'w=[t,-]' --annotate 'y=[t,-]' --machine " + machine + " --overlap ";
  const json automatic = parsed(words + "report"), off = parsed(words + "off"), always = parsed(words + "always");
  EXPECT_LT(1.5 * automatic["predicted"]["step_ms"].get<double>(), off["predicted"]["step_ms"].get<double>());
  const json& rings = automatic["overlap"]["rings"];
  ASSERT_EQ(rings.size(), 2U);
  for (const json& each : rings) EXPECT_EQ(each["taken"], true) << each["why"];
  double count = 0, bytes = 0, hidden = 0;
  for (const json& each : automatic["overlap"]["communications"]) {
    count += each["count"].get<double>();
    bytes += each["bytes"].get<double>();
    hidden += each["hidden"].get<double>() * each["count"].get<double>();
    EXPECT_GT(each["ms"], 0);
    EXPECT_GE(each["waits"]["ms"], each["waits"]["exposed_ms"]);
  }
  EXPECT_GE(count, 12);
  EXPECT_GT(hidden, 0.5 * count);
  constexpr int kBlock = 1 << 20, kExchanged = 3 << 18;
  EXPECT_EQ(bytes, 2 * 2 * 3 * kBlock + 2 * kExchanged) << "three blocks each way of two tensors, and two all-to-alls";
  const json& waits = automatic["overlap"]["waits"];
  EXPECT_LT(waits["ms"], off["overlap"]["waits"]["ms"]);
  EXPECT_EQ(off["overlap"]["communications"].size(), 4U);
  EXPECT_EQ(off["overlap"]["waits"]["no_work_ms"], off["overlap"]["waits"]["ms"]) << "a chain";
  EXPECT_THAT(tessera(words + "report").out, AllOf(HasSubstr("in a ring"), HasSubstr("behind"), HasSubstr("6 × send t"),
                                                   HasSubstr("more than this bound"), HasSubstr("rank 0 waits")));
  EXPECT_THAT(tessera(words + "auto").out, Not(HasSubstr("in a ring ")));
  EXPECT_THAT(always["notes"].dump(), HasSubstr("in a ring, beside its products (one way, whole blocks)"));
  EXPECT_THAT(mistake(words + "sometimes"), HasSubstr("always"));
  EXPECT_THAT(tessera("shard " + model_ + " --mesh tp=2 --dry-run --overlap report").out,
              HasSubstr("ranks are assumed to be threads"));
}

// Two sums whose names differ in a number that is a part of a word, and two that differ in a layer's.
TEST_F(Time, AddsUpCommunicationsOfAlikeLayers) {
  const std::string pair = file("alike.onnxtxt", R"(<ir_version: 10, opset_import: ["" : 21]>
m (float[1024, 1024] x) => (float[1024, 1024] "fc1", float[1024, 1024] "fc2", float[1024, 1024] "h.0.üüüüüüüüüüüüüüüüüüüü",
    float[1024, 1024] "h.1.üüüüüüüüüüüüüüüüüüüü") <float[1024, 1024] u, float[1024, 1024] v, float[1024, 1024] w, float[1024, 1024] z> {
  "fc1" = MatMul (x, u)
  "fc2" = MatMul (x, v)
  "h.0.üüüüüüüüüüüüüüüüüüüü" = MatMul (x, w)
  "h.1.üüüüüüüüüüüüüüüüüüüü" = MatMul (x, z)
})");
  const std::string words = "simulate " + pair + " --mesh t=2 --annotate 'x=[-,t]' --cluster h100-sxm";
  std::map<std::string, double> counts;
  const json overlap = parsed(words)["overlap"];
  for (const json& each : overlap["communications"])
    counts[each["tensor"].get<std::string>()] = each["count"].get<double>();
  EXPECT_EQ(counts, (std::map<std::string, double>{{"fc1", 1}, {"fc2", 1}, {"h.*.üüüüüüüüüüüüüüüüüüüü", 2}}));
  EXPECT_THAT(tessera(words).out, HasSubstr("h.*.üüüüü…üüüüüüüü"));
  EXPECT_THAT(tessera(words + " --overlap report").out, HasSubstr("h.*.üüüüüüüüüüüüüüüüüüüü"));
}

TEST_F(Time, SaysNothingAboutWaitsOfARankAlone) {
  const std::string out = tessera("simulate " + model_ + " --cluster h100-sxm").out;
  EXPECT_THAT(out, AllOf(HasSubstr("no order of the same operators"), Not(HasSubstr("waits for")),
                         Not(HasSubstr("more than this bound"))));
}

// Of what runs, too, with a machine and without one.
TEST_F(Time, ReportsOverlapBesideWhatWasMeasured) {
  const std::string words = "bench " + model_ + " --mesh tp=2 --shapes batch=4 --iterations 3 --warmup 1";
  for (const std::string machine : {"", " --cluster cpu-2x64"}) {
    const json overlap = parsed(words + machine)["overlap"];
    ASSERT_EQ(overlap["communications"].size(), 1U);
    const json& sum = overlap["communications"][0];
    EXPECT_EQ(sum["kind"], "all_reduce");
    EXPECT_EQ(sum["axes"], json({"tp"}));
    EXPECT_EQ(sum["count"], 1);
    EXPECT_GT(sum["bytes"], 0);
    EXPECT_GT(sum["measured"]["exposed_ms"], 0);
    EXPECT_GE(sum["measured"]["late_peer_ms"], 0);
    EXPECT_EQ(sum.contains("waits"), !machine.empty());
    EXPECT_THAT(tessera(words + machine + " --overlap report").out,
                AllOf(HasSubstr("all_reduce tp"), HasSubstr(machine.empty() ? "no machine is named" : "measured")));
  }
  const std::string bytes = "of a training step";
  std::ofstream(folder_ / "t.txt") << std::string(4096, 'a');
  const std::string gpt = std::string(TESSERA_TEST_DATA) + "/models/training/gpt/model.onnx";
  const std::string train = "train " + gpt + " --data " + (folder_ / "t.txt").string() +
                            " --batch 4 --sequence 16 --steps 4 --mesh dp=2 --overlap report";
  const json trained = parsed(train)["overlap"];
  EXPECT_FALSE(trained["communications"].empty());
  for (const json& each : trained["communications"]) {
    EXPECT_GT(each["measured"]["moving_ms"], 0) << bytes;
    EXPECT_GT(each["bytes"], 0) << bytes;
  }
  EXPECT_THAT(tessera(train + " --cluster cpu-2x64").out, HasSubstr("all_reduce dp"));
}

TEST_F(Time, GenerateAndVerifyArePredicted) {
  const std::string tiny = std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx ";
  const json made = parsed("generate " + tiny + "--text 'THE SOFTWARE' --max-new 3 --mesh tp=2 --cluster h100-sxm");
  const double prefill = made["predicted"]["prefill"]["step_ms"], decode = made["predicted"]["decode"]["step_ms"];
  EXPECT_GT(decode, 0);
  EXPECT_GT(prefill, decode) << "12 tokens against one";
  const json uncached = parsed("generate " + tiny + "--ids 1,2,3 --max-new 2 --cache none --cluster h100-sxm");
  EXPECT_GT(uncached["predicted"]["decode"]["step_ms"], 0);
  EXPECT_THAT(tessera("generate " + tiny + "--ids 1,2,3 --max-new 2 --cluster h100-sxm").out,
              AllOf(HasSubstr("decode, one token for each text"), HasSubstr("predicted for H100-SXM")));
  const json verified = parsed("verify " + model_ + " --mesh tp=2 --shapes batch=2 --cluster h100-sxm");
  EXPECT_EQ(verified["pass"], true);
  EXPECT_GT(verified["predicted"]["step_ms"], 0);
}

TEST_F(Time, ExplainsLayoutsByPrices) {
  const auto alternatives = [&](const std::string& machine) {
    return parsed("explain " + model_ + " --mesh tp=2 --shapes batch=64 y" + machine)["alternatives"];
  };
  const json by_bytes = alternatives(""), by_seconds = alternatives(" --cluster h100-sxm");
  for (const json& found : {by_bytes, by_seconds}) {
    ASSERT_GE(found.size(), 2U);
    EXPECT_EQ(found[0]["chosen"], true);
    EXPECT_EQ(found[1]["chosen"], false);
  }
  EXPECT_LE(by_bytes[0]["bytes"], by_bytes[1]["bytes"]);
  EXPECT_LE(by_seconds[0]["seconds"], by_seconds[1]["seconds"]);
  EXPECT_FALSE(by_seconds[0].contains("bytes"));
  EXPECT_THAT(tessera("explain " + model_ + " --mesh tp=2 --shapes batch=64 y --cluster h100-sxm").out,
              AllOf(HasSubstr("by the seconds that moving and computing take"), HasSubstr("chosen")));
}

TEST_F(Time, ASlowRankAndASlowLinkTakeLonger) {
  const std::string command = "simulate " + model_ + " --mesh dp=2,tp=8 --cluster h100-sxm --shapes batch=4096";
  const double usual = parsed(command)["predicted"]["step_ms"];
  EXPECT_GT(parsed(command + " --slow 3=2")["predicted"]["step_ms"], usual);
  EXPECT_GT(parsed(command + " --scale link:nvlink=0.5")["predicted"]["step_ms"], usual);
  EXPECT_LT(parsed(command + " --scale link:nvlink=2")["predicted"]["step_ms"], usual);
}

TEST_F(Time, SaysWhatFailuresCost) {
  const std::string command =
      "simulate " + model_ + " --train --loss mse --mesh dp=4 --cluster a100-80gb --shapes batch=64 --restart-cost 5m";
  const json run = parsed(command + " --mtbf 3h --checkpoint-cost 30s --steps 1000000")["run"];
  EXPECT_EQ(run["mtbf_seconds"], 3 * 3600);
  EXPECT_EQ(run["restart_seconds"], 300);
  EXPECT_GT(run["goodput"], 0.85);
  EXPECT_LT(run["goodput"], 0.92);
  EXPECT_GT(run["expected_seconds"], 0);
  // Of one device: divided by four. All states together at 1 KiB a second.
  const json device = parsed(command + " --device-mtbf 12h --checkpoint-bandwidth 1K --checkpoint-every 7")["run"];
  EXPECT_EQ(device["mtbf_seconds"], 3 * 3600);
  EXPECT_EQ(device["checkpoint_every"], 7);
  EXPECT_EQ(device["checkpoint_seconds"], device["checkpoint_bytes"].get<double>() / 1024);
  EXPECT_GT(device["checkpoint_bytes"], 0);
  EXPECT_THAT(tessera(command + " --mtbf 3h --checkpoint-cost 30s --steps 1000").out,
              AllOf(HasSubstr("with a failure every 3 h 0 min"), HasSubstr("which is best"),
                    HasSubstr("1000 steps are expected to take")));
  const std::string simulate = "simulate " + model_ + " --train --loss mse --mesh dp=4 --cluster a100-80gb ";
  EXPECT_THAT(mistake(simulate + "--restart-cost 5m"), HasSubstr("give --mtbf 3h"));
  EXPECT_THAT(mistake(simulate + "--mtbf 3h --checkpoint-cost 30s"), HasSubstr("give --restart-cost 5m"));
  EXPECT_THAT(mistake(simulate + "--mtbf 3h --restart-cost 5m"), HasSubstr("give --checkpoint-cost 30s"));
  EXPECT_THAT(mistake(simulate + "--mtbf soon --restart-cost 5m --checkpoint-cost 1"),
              HasSubstr("--mtbf 'soon' is not a duration"));
  EXPECT_THAT(mistake(simulate + "--mtbf 3h --restart-cost -5m --checkpoint-cost 1"),
              HasSubstr("--restart-cost '-5m' is not a duration"));
  EXPECT_THAT(mistake(simulate + "--mtbf 3h --restart-cost 5m --checkpoint-cost 1 --checkpoint-every 0.5"),
              HasSubstr("whole number of at least 1"));
  EXPECT_THAT(mistake(simulate + "--mtbf 1s --restart-cost 5h --checkpoint-cost 1 --shapes batch=64"),
              HasSubstr("makes no progress"));
  EXPECT_THAT(mistake("simulate " + model_ + " --mesh dp=4 --cluster a100-80gb --mtbf 3h"), HasSubstr("--train"));
}

TEST_F(Time, WritesExecutionTracesOfClassesOrRanks) {
  const std::string prefix = (folder_ / "et").string();
  const std::string command = "simulate " + model_ + " --mesh dp=4,tp=2 --cluster h100-sxm --shapes batch=64 --chakra ";
  const json classes = parsed(command + prefix)["predicted"]["classes"];
  EXPECT_LT(classes.size(), 8U);
  for (const json& each : classes)
    EXPECT_FALSE(contents(prefix + "." + std::to_string(each["rank"].get<int>()) + ".et").empty());
  EXPECT_EQ(json::parse(contents(prefix + ".classes.json")).size(), classes.size());
  const std::string all = (folder_ / "all").string();
  EXPECT_EQ(parsed(command + all + " --every-rank")["predicted"]["classes"].size(), 8U);
  for (int rank = 0; rank < 8; ++rank) EXPECT_FALSE(contents(all + "." + std::to_string(rank) + ".et").empty());
  EXPECT_FALSE(json::parse(contents(all + ".groups.json")).empty());
  EXPECT_THAT(mistake(command + (folder_ / "nowhere" / "et").string()), HasSubstr("nowhere"));
}

TEST_F(Time, WritesATraceOfItsClasses) {
  const std::string trace = (folder_ / "trace.json").string();
  tessera("simulate " + model_ + " --mesh tp=2 --cluster h100-sxm --trace " + trace);
  const json events = json::parse(contents(trace))["traceEvents"];
  EXPECT_GT(events.size(), 3U);
}

// Nothing is asserted of how exact it is: other work runs beside a test.
TEST_F(Time, CalibratesThisMachineAndPredictsWhatItRuns) {
  const std::string machine = (folder_ / "machine.json").string();
  EXPECT_THAT(tessera("calibrate --quick -o " + machine).out, HasSubstr("FLOP/s"));
  const json before = json::parse(contents(machine));
  EXPECT_GT(before["kernels"].size(), 10U);
  EXPECT_GT(before["cores"], 0);
  const json found = parsed("bench " + model_ + " --mesh tp=2 --iterations 2 --shapes batch=8 --machine " + machine);
  EXPECT_GT(found["predicted"]["step_ms"], 0);
  EXPECT_EQ(found["predicted"]["extrapolated"], 0);
  EXPECT_GT(json::parse(contents(machine))["kernels"].size(), before["kernels"].size());
  // Ranks that are processes have collectives of their own.
  const json spawned = parsed("run " + model_ + " --mesh tp=2 --spawn 2 --shapes batch=8 --machine " + machine);
  EXPECT_GT(spawned["predicted"]["step_ms"], 0);
  std::set<std::string> engines;
  const json after = json::parse(contents(machine));
  for (const json& each : after["collectives"]) engines.insert(each["engine"]);
  EXPECT_THAT(engines, testing::ElementsAre("processes", "threads"));
  // Ranks that other launchers start may be on hosts, where rings need messages.
  if (test::missing(test::kTorchrun.engine, folder_).empty()) {
    const std::string words = " bench " + model_ + " --mesh tp=2 --iterations 1 --shapes batch=8 --engine gloo --quiet";
    const test::Ran ran =
        test::run_command(test::kTorchrun.start(2, TESSERA_BINARY + words + " --machine " + machine), folder_);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::set<std::string> kinds;
    const json with = json::parse(contents(machine));
    for (const json& each : with["collectives"])
      if (each["engine"] == test::kTorchrun.engine) kinds.insert(each["kind"]);
    EXPECT_THAT(kinds, testing::Contains("permute"));
  }
  // A dry run measures nothing, but what was measured counts.
  const std::string text = contents(machine);
  const json dry = parsed("shard " + model_ + " --mesh tp=2 --dry-run --shapes batch=8 --machine " + machine);
  EXPECT_EQ(contents(machine), text);
  EXPECT_GT(dry["predicted"]["step_ms"], 0);
}

TEST_F(Time, AFileOfAnotherMachineIsSaidToBeOne) {
  const std::string other =
      file("other.json", R"({"name": "other", "processor": "another", "cores": 3, "date": "2020-01-01",
    "bandwidths": [{"bytes_per_second": 1e9}], "links": [{"name": "l", "alpha": 1e-6, "bandwidth": 1e9}]})");
  const std::string before = contents(other);
  EXPECT_THAT(tessera("run " + model_ + " --mesh tp=2 --machine " + other).out,
              HasSubstr("describes another machine (another, 3 cores, 2020-01-01), so nothing is measured here"));
  EXPECT_EQ(contents(other), before);
}

TEST_F(Time, MistakesNameThePlaceAndTheFix) {
  const std::string simulate = "simulate " + model_ + " --mesh tp=2 --shapes batch=2 ";
  EXPECT_THAT(mistake(simulate), HasSubstr("no machine is named; give --machine FILE or --cluster"));
  EXPECT_THAT(mistake(simulate + "--cluster cray"),
              AllOf(HasSubstr("'cray' is neither a file"), HasSubstr("h100-sxm")));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --machine x.json"), HasSubstr("give one of them"));
  EXPECT_THAT(mistake(simulate + "--cluster " + file("bad.json", "{\"kernel\": 1")), HasSubstr("is not JSON"));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --slow 7=2"), HasSubstr("no rank 7 on a mesh of 2 ranks"));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --slow x=2"), HasSubstr("'x' is not a rank"));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --slow 1=0"), HasSubstr("factor above 0"));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --scale nvlink=2"), HasSubstr("--scale link:ethernet=2"));
  EXPECT_THAT(mistake(simulate + "--cluster h100-sxm --scale link:dcn=2"),
              AllOf(HasSubstr("no level of links 'dcn'"), HasSubstr("nvlink")));
  const std::string lone = file("lone.json", R"({"bandwidths": [{"bytes_per_second": 1e9}], "links":
    [{"name": "l", "size": 2, "alpha": 1e-6, "bandwidth": 1e9}]})");
  EXPECT_THAT(mistake("simulate " + model_ + " --mesh tp=8 --shapes batch=2 --cluster " + lone),
              HasSubstr("joins at most 2 of the mesh's 8"));
}

}  // namespace
}  // namespace tessera
