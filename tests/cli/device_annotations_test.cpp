// What a user sees of ONNX's device annotations: they are followed without a mesh, checked, completed and written.
#include "tessera/onnx/device_annotations.h"

#include "cli/command_line.h"
#include "tessera/onnx/import.h"

namespace tessera {
namespace {

using testing::Not;

class AnnotatedModel : public CommandLine {
 protected:
  // kPair with `up` split by columns in each of these configurations, over so many devices of eight.
  std::string annotated(const char* name, const std::vector<std::pair<std::string, int64_t>>& configurations) {
    OnnxModel model = import_model(model_);
    std::vector<DeviceConfiguration> all;
    std::vector<NodeDevices> said;
    for (const auto& [configuration, devices] : configurations) {
      all.push_back({configuration, 8, {}});
      ShardingSpec spec{"up", {}, {}, {{1, {{32, "", devices}}}}};
      for (int64_t device = 0; device < devices; ++device) spec.devices.push_back(device);
      said.push_back({configuration, {spec}, std::nullopt});
    }
    set_device_configurations(model, all);
    set_device_annotations(*model.graph->find("hidden")->producer, said);
    export_model(model, folder_ / name);
    return (folder_ / name).string();
  }
};

TEST_F(AnnotatedModel, IsFollowedWithoutAMesh) {
  const std::string one = annotated("one.onnx", {{"pairs", 2}});
  for (const char* command : {"run ", "verify ", "check ", "shard --dry-run ", "bench --iterations 1 "}) {
    const Ran ran = tessera(command + one);
    EXPECT_EQ(ran.code, 0) << command << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("note: device configuration 'pairs', mesh d=2 (2 ranks)")) << command;
  }
  EXPECT_THAT(tessera("explain " + one + " up").out,
              AllOf(HasSubstr("[-, 32{d}]"), HasSubstr("from device configuration 'pairs', annotated")));
  EXPECT_EQ(parsed("shard --dry-run " + one)["mesh"], json({{"d", 2}}));
  EXPECT_EQ(tessera("shard " + one + " -o " + (folder_ / "out").string()).code, 0);
  EXPECT_EQ(parsed("run " + (folder_ / "out").string() + " --inputs " + npz("in.npz", "x", test::ramp({2, 8})))["mesh"],
            json({{"d", 2}}));
  EXPECT_EQ(parsed("inspect " + one)["annotated_nodes"], 1);
}

TEST_F(AnnotatedModel, GivesWayToAMesh) {
  const Ran ran = tessera("shard --dry-run --mesh tp=3 " + annotated("one.onnx", {{"pairs", 2}}));
  EXPECT_THAT(ran.out, HasSubstr("mesh tp=3"));
  EXPECT_THAT(ran.err, HasSubstr("are not applied, because a mesh is given; leave it out to follow them"));
}

TEST_F(AnnotatedModel, TakesWhatTheUserAddsFirst) {
  const std::string one = annotated("one.onnx", {{"pairs", 2}});
  EXPECT_THAT(tessera("explain " + one + " up --annotate 'up=[d,-]'").out,
              AllOf(HasSubstr("[8{d}, -]"), HasSubstr("from annotation")));
}

TEST_F(AnnotatedModel, NamesItsConfigurations) {
  const std::string both = annotated("both.onnx", {{"pairs", 2}, {"fours", 4}});
  EXPECT_THAT(mistake("run " + both), AllOf(HasSubstr("has several device configurations, pairs, fours"),
                                            HasSubstr("name one with --configuration")));
  EXPECT_EQ(parsed("shard --dry-run --configuration fours " + both)["mesh"], json({{"d", 4}}));
  EXPECT_THAT(mistake("run --configuration threes " + both),
              HasSubstr("the model has no device configuration 'threes'; it has 'pairs', 'fours'"));
  EXPECT_THAT(mistake("run --configuration pairs --mesh tp=2 " + both), HasSubstr("leave out one of the two"));
  EXPECT_THAT(mistake("run --configuration pairs " + model_), HasSubstr("it has none"));
  const json checked = parsed("check " + both);
  EXPECT_TRUE(checked["good"]);
  EXPECT_EQ(checked["configurations"]["fours"]["mesh"], json({{"d", 4}}));
  const std::string out = (folder_ / "program").string();
  EXPECT_EQ(tessera("shard " + both + " --configuration pairs -o " + out).code, 0);
  EXPECT_THAT(mistake("run " + out + " --configuration pairs"), HasSubstr("--configuration"));
}

TEST_F(AnnotatedModel, IsRefusedWithItsFaults) {
  OnnxModel model = import_model(annotated("one.onnx", {{"pairs", 2}}));
  Node& node = *model.graph->find("hidden")->producer;
  auto said = device_annotations(node);
  said[0].specs[0].devices = {0, 9, 3};
  said[0].specs.push_back({"upp", {0}, {}, {}});
  set_device_annotations(node, said);
  const std::string wrong = (folder_ / "wrong.onnx").string();
  export_model(model, wrong);
  const Ran checked = tessera("check " + wrong);
  EXPECT_EQ(checked.code, 1);
  EXPECT_THAT(checked.out,
              AllOf(HasSubstr("device: MatMul producing 'hidden', configuration 'pairs', 'up': its list "
                              "names 9"),
                    HasSubstr("split into 2 shards, but its list has 3 entries"),
                    HasSubstr("'upp': it is neither an operand nor a result of the node; did you mean 'up'"),
                    HasSubstr("WRONG")));
  const json found = parsed("check " + wrong, 1);
  EXPECT_FALSE(found["good"]);
  EXPECT_EQ(found["findings"].size(), 3U);
  EXPECT_EQ(found["findings"][0]["rule"], "device");
  for (const char* command : {"run ", "verify ", "shard --dry-run ", "explain ", "infer -o x.onnx "}) {
    const std::string words = command + wrong + (std::string(command) == "explain " ? " up" : "");
    EXPECT_THAT(mistake(words), AllOf(HasSubstr("names 9"), HasSubstr("and 2 more faults; tessera check names all")));
  }
}

// Nobody can ask for such a configuration, so that its annotations would count for nothing.
TEST_F(AnnotatedModel, IsRefusedIfItDoesNotDeclareAConfigurationThatNodesName) {
  const std::string file = (folder_ / "undeclared.onnx").string();
  for (const bool another : {false, true}) {
    OnnxModel model = import_model(annotated("one.onnx", {{"pairs", 2}}));
    if (another) {
      std::vector<NodeDevices> said = device_annotations(*model.graph->find("hidden")->producer);
      said.push_back(said.front());
      said.back().configuration = "fours";
      set_device_annotations(*model.graph->find("hidden")->producer, said);
    } else {
      set_device_configurations(model, {});
    }
    export_model(model, file);
    const std::string fault =
        another
            ? "MatMul producing 'hidden', configuration 'fours': the model does not declare this configuration, but "
              "'pairs'; declare it, or correct the name in the node"
            : "MatMul producing 'hidden', configuration 'pairs': the model does not declare this configuration, nor "
              "any other";
    const Ran checked = tessera("check " + file);
    EXPECT_EQ(checked.code, 1);
    EXPECT_THAT(checked.out, AllOf(HasSubstr("device: " + fault), HasSubstr("WRONG")));
    for (const char* command : {"run ", "verify ", "shard --dry-run ", "bench --iterations 1 ", "explain ",
                                "train --dry-run --loss mse --data x --steps 1 ", "infer -o x.onnx "}) {
      const std::string words = command + file + (std::string(command) == "explain " ? " up" : "");
      EXPECT_THAT(mistake(words), HasSubstr(fault));
    }
    EXPECT_EQ(tessera("run --mesh tp=2 " + file).code, 0) << "a mesh comes in place of what the file says";
  }
}

TEST_F(AnnotatedModel, IsCompletedAndWritten) {
  const std::string one = annotated("one.onnx", {{"pairs", 2}}), whole = (folder_ / "whole.onnx").string();
  EXPECT_EQ(parsed("infer " + one + " -o " + whole)["written"], whole);
  EXPECT_EQ(parsed("inspect " + whole)["annotated_nodes"], 3);
  EXPECT_EQ(parsed("shard --dry-run " + whole)["collectives"], parsed("shard --dry-run " + one)["collectives"]);
  const std::string ours = (folder_ / "ours.onnx").string();
  EXPECT_EQ(parsed("annotate " + model_ + " --mesh dp=2,tp=2 -o " + ours)["configuration"], "tessera");
  const json plan = parsed("shard --dry-run " + ours), direct = parsed("shard --dry-run --mesh dp=2,tp=2 " + model_);
  for (const char* key : {"mesh", "collectives", "ranks"}) EXPECT_EQ(plan[key], direct[key]) << key;
  const std::string two = (folder_ / "two.onnx").string();
  EXPECT_EQ(tessera("annotate " + ours + " --mesh tp=4 --preset megatron --name wide -o " + two).code, 0);
  EXPECT_EQ(parsed("shard --dry-run --configuration wide " + two)["mesh"], json({{"tp", 4}}));
  EXPECT_EQ(parsed("shard --dry-run --configuration tessera " + two)["mesh"], json({{"dp", 2}, {"tp", 2}}));
  EXPECT_THAT(mistake("infer " + two + " -o " + two), HasSubstr("would overwrite"));
  const std::string three = (folder_ / "three.onnx").string();
  EXPECT_EQ(tessera("infer " + two + " -o " + three).code, 0);
  EXPECT_EQ(tessera("verify --configuration wide " + three).code, 0);
}

TEST_F(AnnotatedModel, MistakesInWriting) {
  EXPECT_THAT(mistake("annotate " + model_ + " -o x.onnx"), HasSubstr("no mesh to annotate the model for"));
  EXPECT_THAT(mistake("annotate " + model_ + " --mesh tp=? -o x.onnx"), HasSubstr("is open"));
  EXPECT_THAT(mistake("annotate " + model_ + " --mesh tp=2 --configuration c -o x.onnx"),
              HasSubstr("leave out --configuration"));
  EXPECT_THAT(mistake("annotate " + model_ + " --mesh tp=2 --name '' -o x.onnx"), HasSubstr("needs a name"));
  EXPECT_THAT(mistake("annotate " + model_ + " --mesh tp=2 -o /nowhere/x.onnx"), HasSubstr("/nowhere/x.onnx"));
  EXPECT_THAT(mistake("infer " + model_ + " -o x.onnx"), HasSubstr("has no device configuration"));
  EXPECT_EQ(tessera("annotate " + model_ + " --mesh tp=2").code, 2);
}

}  // namespace
}  // namespace tessera
