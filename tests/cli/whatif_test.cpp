// Questions about recorded runs, as a person asks them.
#include "cli/command_line.h"
#include "tessera/files.h"

namespace tessera {
namespace {

using testing::ElementsAre;

class WhatIfCommand : public CommandLine {
 protected:
  std::string at(const char* name) const { return (folder_ / name).string(); }

  // A trace of a few runs.
  std::string trace(const std::string& options = "--mesh tp=2", const char* name = "trace.json") {
    EXPECT_EQ(tessera("bench " + model_ + " --quiet --iterations 3 --warmup 1 --shapes batch=64 " + options +
                      " --profile " + at(name))
                  .code,
              0);
    return at(name);
  }

  std::string training_trace(const std::string& options) {
    EXPECT_EQ(tessera("train " + model_ + " --loss mse --data " + data_ + " --quiet " + options + " --profile " +
                      at("training.json"))
                  .code,
              0);
    return at("training.json");
  }

  double step_ms(const std::string& words) { return parsed("whatif " + words)["step_ms"].get<double>(); }

  std::string data_;

  void SetUp() override {
    write_npz(folder_ / "data.npz", {{"x", test::ramp({6, 64, 8})}, {"labels", test::ramp({6, 64, 8})}});
    data_ = at("data.npz");
  }
};

TEST_F(WhatIfCommand, AnUnchangedRunIsRepeated) {
  const std::string recorded = trace();
  const json found = parsed("whatif " + recorded);
  EXPECT_EQ(found["runs"], 3);
  EXPECT_EQ(found["mesh"], json({{"tp", 2}}));
  EXPECT_GT(found["measured_ms"], 0);
  EXPECT_EQ(found["step_ms"], found["measured_ms"]);
  EXPECT_LT(std::abs(found["replay_error"].get<double>()), 0.2);
  EXPECT_THAT(tessera("whatif " + recorded).out, AllOf(HasSubstr("3 runs of "), HasSubstr("on tp=2"),
                                                       HasSubstr("simulated unchanged: "), Not(HasSubstr("-0.0"))));
}

// Each change by its sign, and by its size where that is certain.
TEST_F(WhatIfCommand, ChangesOfOperatorsAndLinksChangeTheTime) {
  const std::string recorded = trace();
  const json before = parsed("whatif " + recorded);
  const double measured = before["measured_ms"];
  EXPECT_GT(step_ms(recorded + " --scale op:MatMul=5"), measured);
  EXPECT_LT(step_ms(recorded + " --scale 'op:Mat*=0.1'"), measured);
  EXPECT_GT(step_ms(recorded + " --scale link:threads=0.1"), measured);
  EXPECT_LT(step_ms(recorded + " --scale link:threads=10"), measured);
  EXPECT_LT(step_ms(recorded + " --drop 'Mat*' --drop AllReduce"), measured);
  EXPECT_LE(step_ms(recorded + " --overlap perfect"), measured * 1.001);
  EXPECT_GT(step_ms(recorded + " --overlap off"), 0);
  // Two products on each rank, one after the other.
  const json inserted = parsed("whatif " + recorded + " --insert 'MatMul*=20'");
  EXPECT_NEAR(inserted["after"]["step_ms"].get<double>() - inserted["before"]["step_ms"].get<double>(), 40, 1);
  bool found = false;
  for (const json& part : inserted["parts"]) found = found || (part["op"] == "inserted" && part["after_ms"] > 39);
  EXPECT_TRUE(found) << inserted["parts"];
  EXPECT_THAT(tessera("whatif " + recorded + " --insert 'MatMul*=20'").out,
              AllOf(HasSubstr("changed: "), HasSubstr("what the step waits for"), HasSubstr("inserted")));
  EXPECT_THAT(tessera("whatif " + recorded + " --overlap perfect").out,
              HasSubstr("no order of the same operators beats"));
}

TEST_F(WhatIfCommand, TracesOfProcessesAndOfAcceleratorsServe) {
  for (const char* options : {"--mesh tp=2 --spawn 2", "--mesh tp=2 --device simulated", "--mesh tp=1"}) {
    SCOPED_TRACE(options);
    const json found = parsed("whatif " + trace(options) + " --scale op:MatMul=3");
    EXPECT_GT(found["step_ms"], found["measured_ms"]);
    EXPECT_LT(std::abs(found["replay_error"].get<double>()), 0.3);
  }
}

TEST_F(WhatIfCommand, AnotherProgramIsCompiledFromTheTrace) {
  const std::string recorded = training_trace("--mesh dp=2");
  const double measured = parsed("whatif " + recorded)["measured_ms"];
  // One bucket instead of one collective for each gradient, all of whose kernels were recorded.
  const json joined = parsed("whatif " + recorded + " --bucket-bytes 64M");
  EXPECT_EQ(joined["after"]["extrapolated"], 0);
  EXPECT_GT(joined["step_ms"], 0);
  // Other kernels want a machine.
  EXPECT_THAT(mistake("whatif " + recorded + " --ranks dp=4"),
              AllOf(HasSubstr("has no times for"), HasSubstr("--machine FILE or --cluster")));
  const json wider = parsed("whatif " + recorded + " --ranks dp=4 --cluster cpu-2x64");
  EXPECT_EQ(wider["mesh"], json({{"dp", 4}}));
  EXPECT_EQ(wider["recorded_mesh"], json({{"dp", 2}}));
  EXPECT_GT(wider["after"]["extrapolated"], 0);
  EXPECT_EQ(wider["measured_ms"], measured);
  EXPECT_GT(parsed("whatif " + recorded + " --dtype bf16 --cluster cpu-2x64")["after"]["extrapolated"], 0);
  EXPECT_GT(step_ms(recorded + " --shapes batch=4096 --cluster cpu-2x64"), measured);
  EXPECT_THAT(tessera("whatif " + recorded + " --ranks dp=4 --cluster cpu-2x64").out,
              AllOf(HasSubstr("changed, on dp=4 (4 ranks): "), HasSubstr("of the operators' time was not recorded")));
  const std::string run = trace();
  EXPECT_EQ(parsed("whatif " + run + " --ranks tp=4 --cluster cpu-2x64")["mesh"], json({{"tp", 4}}));
}

TEST_F(WhatIfCommand, ATraceSaysWhatPerfettoNeedsAndWhichProgramRan) {
  const json written = json::parse(contents(trace()));
  for (const json& event : written["traceEvents"])
    EXPECT_EQ(event["ph"] == "X", event.value("args", json::object()).contains("action")) << event;
  const json& recorded = written["tessera"];
  EXPECT_EQ(recorded["runs"].size(), 3U);
  EXPECT_EQ(recorded["command"]["name"], "bench");
  EXPECT_EQ(recorded["command"]["options"]["--mesh"], json({"tp=2"}));
  EXPECT_EQ(recorded["program"]["mesh"], "tp=2");
  EXPECT_EQ(recorded["program"]["program_of"].size(), 2U);
}

TEST_F(WhatIfCommand, MistakesNameThePlaceAndTheFix) {
  const std::string recorded = trace();
  const std::string whatif = "whatif " + recorded + " ";
  EXPECT_THAT(mistake(whatif + "--scale op:Conv=2"), AllOf(HasSubstr("no operator 'Conv'"), HasSubstr("MatMul")));
  EXPECT_THAT(mistake(whatif + "--drop 'Dropout*'"), HasSubstr("no operator 'Dropout*'"));
  EXPECT_THAT(mistake(whatif + "--insert Conv=2"), HasSubstr("no operator 'Conv'"));
  EXPECT_THAT(mistake(whatif + "--scale link:ethernet=2"),
              AllOf(HasSubstr("uses links 'ethernet'"), HasSubstr("its links are: threads")));
  EXPECT_THAT(mistake(whatif + "--scale MatMul=2"), HasSubstr("write it as op:MatMul"));
  EXPECT_THAT(mistake(whatif + "--scale op:MatMul=0"), HasSubstr("factor above 0"));
  EXPECT_THAT(mistake(whatif + "--insert MatMul"), HasSubstr("--insert MatMul=0.5"));
  EXPECT_THAT(mistake(whatif + "--overlap some"), HasSubstr("perfect"));
  EXPECT_THAT(mistake(whatif + "--ranks dp=4"), HasSubstr("tp=2 (2 ranks), has no axis 'dp'"));
  EXPECT_THAT(mistake(whatif + "--ranks tp=1.5"), HasSubstr("whole number of ranks"));
  EXPECT_THAT(mistake(whatif + "--cluster h100-sxm"), HasSubstr("--ranks"));
  EXPECT_THAT(mistake("whatif " + at("nothing.json")), HasSubstr("nothing.json"));
}

TEST_F(WhatIfCommand, OtherFilesAreRefused) {
  const std::string text = contents(trace());
  const auto refused = [&](const std::string& other) {
    write_file(folder_ / "other.json", other);
    return mistake("whatif " + at("other.json"));
  };
  EXPECT_THAT(refused(text.substr(0, text.size() / 2)),
              AllOf(HasSubstr("other.json ends in the middle, after"),
                    HasSubstr("record it again with --profile of bench or train")));
  EXPECT_THAT(refused(text.substr(0, text.size() - 1)), HasSubstr("ends in the middle"));
  EXPECT_THAT(refused("a text"), HasSubstr("other.json is no trace"));
  EXPECT_THAT(refused(""), HasSubstr("is no trace"));
  EXPECT_THAT(refused("[1, 2]"), HasSubstr("has no 'traceEvents'"));
  EXPECT_THAT(refused(R"({"traceEvents": []})"), HasSubstr("another tool wrote it, or --trace of simulate"));
  json changed = json::parse(text);
  changed["tessera"]["program"]["version"] = 99;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("another version of tessera"));
  changed = json::parse(text);
  changed["traceEvents"].erase(changed["traceEvents"].size() - 1);
  EXPECT_THAT(refused(changed.dump()), AllOf(HasSubstr("run 2 of rank 1 has"), HasSubstr("a part of it was cut out")));
  changed = json::parse(text);
  changed["tessera"]["program"]["programs"][0]["actions"][0][0] = 12345;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("what it says of the program is damaged"));
  changed = json::parse(text);
  changed["traceEvents"].back()["args"]["action"] = 12345;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("of action 12345, which its program does not have"));
  changed = json::parse(text);
  changed["traceEvents"].push_back(changed["traceEvents"].back());
  EXPECT_THAT(refused(changed.dump()), HasSubstr("others were added"));
  changed = json::parse(text);
  changed["traceEvents"].back()["args"]["run"] = 9;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("an event of run 9, of 3"));
  changed = json::parse(text);
  changed["traceEvents"].back()["dur"] = -5;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("a duration of -5 us"));
  changed = json::parse(text);
  changed["tessera"]["runs"][1]["dur"] = 0;
  EXPECT_THAT(refused(changed.dump()), HasSubstr("a run of no duration"));
  for (const auto& [key, value] : std::map<std::string, json>{{"threads", 0}, {"mesh", "tp=0"}, {"device", "abacus"}}) {
    SCOPED_TRACE(key);
    changed = json::parse(text);
    changed["tessera"]["program"][key] = value;
    EXPECT_THAT(refused(changed.dump()), HasSubstr("other.json: what it says of the program is damaged"));
  }
  changed = json::parse(text);
  changed["traceEvents"].back().erase("args");
  EXPECT_THAT(refused(changed.dump()), HasSubstr("its events are damaged"));
  EXPECT_EQ(tessera("simulate " + model_ + " --mesh tp=2 --cluster h100-sxm --trace " + at("simulated.json")).code, 0);
  EXPECT_THAT(mistake("whatif " + at("simulated.json")), HasSubstr("--trace of simulate"));
  // Without what it says of the command, nothing can be compiled anew.
  changed = json::parse(text);
  changed["tessera"]["command"] = json::object();
  write_file(folder_ / "other.json", changed.dump());
  EXPECT_THAT(mistake("whatif " + at("other.json") + " --ranks tp=4 --cluster h100-sxm"),
              HasSubstr("does not say which model ran"));
}

TEST_F(WhatIfCommand, AModelThatHasChangedSinceIsRefused) {
  write_file(folder_ / "own.onnx", contents(model_));
  ASSERT_EQ(tessera("bench " + at("own.onnx") + " --quiet --mesh tp=2 --iterations 2 --shapes batch=64 --profile " +
                    at("own.json"))
                .code,
            0);
  EXPECT_GT(step_ms(at("own.json") + " --ranks tp=4 --cluster cpu-2x64"), 0);
  write_file(folder_ / "own.onnx", contents(model_) + "\n");
  EXPECT_GT(step_ms(at("own.json") + " --scale op:MatMul=3"), 0) << "which asks nothing of the model";
  EXPECT_THAT(mistake("whatif " + at("own.json") + " --ranks tp=4 --cluster cpu-2x64"),
              AllOf(HasSubstr("own.onnx has"), HasSubstr("it is another model by now; record it again")));
}

TEST_F(WhatIfCommand, WithoutAMachineKernelsOfAnotherTypeTakeAssumedTimes) {
  const std::string recorded = trace();
  const json half = parsed("whatif " + recorded + " --dtype bf16");
  EXPECT_THAT(half["assumed"].get<std::string>(),
              HasSubstr("large products of bfloat16 are 2 times as fast as of float32"));
  EXPECT_THAT(tessera("whatif " + recorded + " --dtype bf16").out,
              HasSubstr("was not recorded: computed by the rates of recorded operators; large products of bfloat16"));
}

TEST_F(WhatIfCommand, AWrittenProgramCannotBeCompiledAnew) {
  ASSERT_EQ(tessera("shard " + model_ + " --mesh tp=2 -o " + at("program")).code, 0);
  write_npz(folder_ / "inputs.npz", {{"x", test::ramp({64, 8})}});
  ASSERT_EQ(tessera("bench " + at("program") + " --quiet --iterations 2 --inputs " + at("inputs.npz") + " --profile " +
                    at("written.json"))
                .code,
            0);
  EXPECT_GT(step_ms(at("written.json") + " --scale op:MatMul=3"), 0);
  EXPECT_THAT(mistake("whatif " + at("written.json") + " --ranks tp=4 --cluster h100-sxm"),
              HasSubstr("was recorded of a written program"));
}

}  // namespace
}  // namespace tessera
