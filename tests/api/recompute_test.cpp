// What the backward pass computes again is what the forward pass computed, whatever is held and on any mesh; and less
// memory is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <optional>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/error.h"
#include "tessera/io/npz.h"
#include "tessera/training.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

const std::string kTrainingModels = std::string(TESSERA_TEST_DATA) + "/models/training/";

/// Eight blocks with a residual stream, so that most memory is what is held for the backward pass.
std::string blocks() {
  std::string states, nodes = "  h0 = Identity (x)\n";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    states += (i ? ", " : "") + ("float[16] scale" + n) + ", float[16, 64] up" + n + ", float[64, 16] down" + n;
    nodes += "  norm" + n + " = RMSNormalization (h" + n + ", scale" + n + ")\n  wide" + n + " = MatMul (norm" + n +
             ", up" + n + ")\n  active" + n + " = Gelu (wide" + n + ")\n  kept" + n + " = Dropout (active" + n +
             ", ratio, on)\n  back" + n + " = MatMul (kept" + n + ", down" + n + ")\n  h" + std::to_string(i + 1) +
             " = Add (h" + n + ", back" + n + ")\n";
  }
  return "<ir_version: 10, opset_import: [\"\" : 24]>\nblocks (float[1536, 16] x) => (float[1536, 16] y) <" + states +
         "> {\n  ratio = Constant <value_float = 0.25> ()\n  on = Constant <value = bool {1}> ()\n" + nodes +
         "  y = Identity (h8)\n}\n";
}

const std::string kRecomputeHeader = "<ir_version: 10, opset_import: [\"\" : 24]>\n";

struct Case {
  std::string model, mesh, presets;
};

class Recompute : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    Training training;
    training.optimizer = "sgd:momentum=0.9";
    training.clip = 1;
    if (GetParam().model == "blocks") {
      training.loss = "mse";
      step_ = training_step(Model::load(write_model(folder_, blocks(), 5)), training);
      batch_ = {{"x", ramp({1536, 16})}, {"labels", ramp({1536, 16}, 3)}};
      return;
    }
    const Model model = Model::load(kTrainingModels + GetParam().model + "/model.onnx");
    const auto data = read_npz(kTrainingModels + GetParam().model + "/data.npz");
    for (const TensorInfo& input : model.inputs())
      for (size_t d = 0; d < input.shape.size(); ++d)
        if (!std::isdigit(static_cast<unsigned char>(input.shape[d].front())))
          training.sizes.emplace(input.shape[d], data.at(input.name).dims[d + 1]);
    step_ = training_step(model, training);
    for (const auto& [name, all] : data) {
      Tensor one = all;
      one.dims.erase(one.dims.begin());
      one.bytes = all.bytes / static_cast<size_t>(all.dims.front());
      batch_.emplace(name, one);
    }
  }

  Program compiled(const std::string& recompute, size_t memory_limit = 0,
                   std::optional<int64_t> bucket_bytes = std::nullopt) const {
    Plan plan;
    plan.bucket_bytes = bucket_bytes;
    plan.presets = GetParam().presets;
    plan.recompute = recompute;
    CompileOptions options;
    options.memory_limit = memory_limit;
    return compile(step_.model, Mesh::parse(GetParam().mesh), plan, options);
  }

  // The loss of each of three steps and all states after them.
  Tensors trained(const Program& program) const {
    Session session(program, one_thread());
    Tensors results;
    for (int i = 0; i < 3; ++i) results["loss " + std::to_string(i)] = session.run(batch_).at("loss");
    for (auto& [name, state] : session.states()) results[name] = state;
    return results;
  }

  TemporaryFolder folder_;
  TrainingStep step_;
  Tensors batch_;
};

TEST_P(Recompute, changes_no_bit) {
  const Tensors expected = trained(compiled("none"));
  for (const char* which : {"selective", "full", "*"}) {
    SCOPED_TRACE(which);
    const Program program = compiled(which);
    EXPECT_THAT(program.summary().notes, testing::Contains(HasSubstr("recomputation: ")));
    expect_same(trained(program), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, Recompute,
                         testing::Values(Case{"gpt", "", ""}, Case{"gpt", "dp=2", ""}, Case{"gpt", "tp=2", ""},
                                         Case{"gpt", "fsdp=2", ""}, Case{"gpt", "tp=2", "megatron+sequence"},
                                         Case{"llama", "dp=2,tp=2", ""}, Case{"blocks", "fsdp=3", ""}),
                         [](const auto& info) {
                           std::string name = info.param.model + "_" + info.param.mesh + "_" + info.param.presets;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

class RecomputedBlocks : public Recompute {};

TEST_P(RecomputedBlocks, hold_less_the_more_is_computed_again) {
  const RankFigures none = compiled("none").figures(0), selective = compiled("selective").figures(0),
                    full = compiled("full").figures(0);
  EXPECT_LT(selective.peak_bytes, none.peak_bytes);
  EXPECT_LT(full.peak_bytes, selective.peak_bytes);
  EXPECT_LT(none.flops, selective.flops);
  EXPECT_LT(selective.flops, full.flops);
  EXPECT_LT(compiled("active*,kept*").figures(0).peak_bytes, none.peak_bytes);
}

// Four limits between what full and no recomputation need: the tighter, the more work, but never more than for full.
TEST_P(RecomputedBlocks, fit_into_a_limit) {
  const Program holding = compiled("none"), repeating = compiled("full");
  const RankFigures none = holding.figures(0), full = repeating.figures(0);
  const int64_t least = repeating.process_bytes(), most = holding.process_bytes();
  int64_t flops = none.flops;
  for (int fifths = 4; fifths > 0; --fifths) {
    const int64_t limit = least + (most - least) * fifths / 5;
    const Program program = compiled("auto", static_cast<size_t>(limit));
    EXPECT_LE(program.process_bytes(), limit);
    EXPECT_EQ(compiled("auto", static_cast<size_t>(limit)).text(), program.text()) << "each process compiles by itself";
    EXPECT_GE(program.figures(0).flops, flops);
    EXPECT_LE(program.figures(0).flops, full.flops);
    flops = program.figures(0).flops;
  }
  EXPECT_GT(flops, none.flops);
  EXPECT_EQ(compiled("auto", static_cast<size_t>(most)).figures(0).flops, none.flops);
}

// Buckets need memory of their own; where that is not there, they give way before anything is computed again.
TEST_P(RecomputedBlocks, give_up_buckets_first) {
  const auto peak = [&](std::optional<int64_t> bucket_bytes) {
    return compiled("none", 0, bucket_bytes).process_bytes();
  };
  const int64_t alone = peak(0);
  EXPECT_EQ(compiled("none", static_cast<size_t>(alone)).process_bytes(), alone);
  EXPECT_EQ(compiled("auto", static_cast<size_t>(alone)).figures(0).flops, compiled("none").figures(0).flops);
  if (const int64_t joined = peak(std::nullopt); joined > alone) {
    EXPECT_THROW(compiled("none", static_cast<size_t>(alone), 1 << 24), Error) << "buckets that a person wants stay";
  }
}

// What the backward pass gathers by itself serves what is computed again, too; what the forward pass keeps gathered
// stays.
TEST_P(RecomputedBlocks, gather_a_state_twice_at_most) {
  const auto gathers = [&](const std::string& recompute, bool keep) {
    Plan plan;
    plan.recompute = recompute;
    if (keep) plan.keep_gathered = {"*"};
    const Program program = compile(step_.model, Mesh::parse(GetParam().mesh), plan);
    int64_t count = 0;
    for (const CollectiveSummary& entry : program.summary().collectives)
      if (entry.kind == "all_gather") count += entry.count;
    return count;
  };
  if (!GetParam().mesh.starts_with("fsdp")) return;  // nothing is stored split
  // Both passes read scales and weights, but for the first scale, since the input has no gradient. The backward pass
  // begins with five that the forward pass has gathered just before.
  EXPECT_EQ(gathers("none", false), 2 * 24 - 1 - 5);
  EXPECT_EQ(gathers("full", false), 2 * 24 - 5);
  EXPECT_EQ(gathers("none", true), 24);
  EXPECT_EQ(gathers("full", true), 24);
}

TEST_P(RecomputedBlocks, say_what_is_freed) {
  const std::vector<std::string> notes = compiled("active*,kept*").summary().notes;
  EXPECT_THAT(notes,
              testing::Contains(testing::ContainsRegex("16 operators run again, so [1-9].* less are held")));
  EXPECT_THAT(compiled("wide*").summary().notes, testing::Contains(HasSubstr("run again")));
}

INSTANTIATE_TEST_SUITE_P(Steps, RecomputedBlocks,
                         testing::Values(Case{"blocks", "", ""}, Case{"blocks", "dp=2", ""},
                                         Case{"blocks", "fsdp=2", ""}, Case{"blocks", "tp=2", ""}),
                         [](const auto& info) {
                           return "On" + std::string(1, info.param.mesh.empty() ? '1' : info.param.mesh[0]);
                         });

class RecomputeMistakes : public Recompute {};

TEST_P(RecomputeMistakes, are_named_with_what_would_do) {
  const auto refusal = [&](const std::string& which, size_t limit = 0) {
    try {
      compiled(which, limit);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("acitve3"), AllOf(HasSubstr("'acitve3' matches no result"), HasSubstr("active3")));
  EXPECT_THAT(refusal("active*,"), HasSubstr("empty name"));
  EXPECT_THAT(refusal("auto"), HasSubstr("memory limit"));
  EXPECT_THAT(refusal("auto:many"), HasSubstr("auto:2e9"));
  EXPECT_THAT(refusal("auto", 1000), HasSubstr("more than the limit"));
  try {
    Plan plan;
    plan.recompute = "full";
    compile(Model::load(write_model(folder_, kRecomputeHeader + std::string(kPair))), Mesh::parse(""), plan);
    ADD_FAILURE() << "a model without a backward pass is accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no backward pass"));
  }
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RecomputeMistakes, testing::Values(Case{"blocks", "", ""}));

}  // namespace
}  // namespace tessera::test
