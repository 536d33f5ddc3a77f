// `tessera generate`: prompts in, texts out.
#include "cli/command_line.h"

namespace tessera {
namespace {

class GenerateCommand : public CommandLine {
 protected:
  const std::string tiny_ = "generate " + std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx ";
  const std::string cached_ = "generate " + std::string(TESSERA_TEST_DATA) + "/models/llama-cache/model.onnx ";
};

TEST_F(GenerateCommand, continues_a_text_of_bytes) {
  const std::string words = tiny_ + "--text 'THE SOFTWARE IS PROVIDED ' --max-new 24 ";
  const std::string text = "THE SOFTWARE IS PROVIDED BY APPLICABLE LAW.\nEXCEP\n";
  for (const char* mesh : {"", "--mesh tp=2 ", "--mesh tp=3 ", "--cache none ", "--mesh tp=2 --spawn 2 ",
                           "--mesh tp=2 --spawn 2 --cache none "}) {
    const Ran ran = tessera(words + "--quiet " + mesh);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.out, text) << mesh;
  }
  const Ran told = tessera(words);
  EXPECT_THAT(told.out, AllOf(HasSubstr("caches for 49 tokens, which the model itself lacks, take "), HasSubstr(text),
                              HasSubstr("prefill "), HasSubstr(" tokens/s; the weights, "),
                              HasSubstr(", and with what caches hold ")));
}

TEST_F(GenerateCommand, continues_prompts_of_several_lengths) {
  write_npz(folder_ / "prompts.npz", {{"a", Tensor::of<int64_t>(DType::int64, {4}, {5, 7, 42, 3})},
                                      {"b", Tensor::of<int64_t>(DType::int64, {2, 2}, {11, 2, 8, 8})}});
  const std::string file = (folder_ / "prompts.npz").string(), out = (folder_ / "out.npz").string();
  const json made = parsed(cached_ + "--state 'past.*=present.*' --prompt " + file + " --max-new 6 --outputs " + out +
                           " --mesh dp=3,tp=2");
  EXPECT_EQ(made["cache"], "held");
  EXPECT_EQ(made["cache_given"], false);
  EXPECT_EQ(made["prefill_tokens"], 8);
  ASSERT_EQ(made["texts"].size(), 3u);
  const json alone = parsed(cached_ + "--ids 11,2 --max-new 6");
  EXPECT_EQ(made["texts"][1], alone["texts"][0]) << "a text is the same alone and beside others, on any mesh";
  EXPECT_EQ(read_npz(out).at("ids_1").to_int64(), alone["texts"][0]["ids"].get<std::vector<int64_t>>());
  // 96 100 …, the first of which ends the text.
  const json stopped = parsed(cached_ + "--ids 5,7,42,3 --max-new 6 --stop 0,100");
  EXPECT_EQ(stopped["texts"][0]["stopped"], true);
  EXPECT_EQ(stopped["texts"][0]["ids"], json({96, 100}));
  EXPECT_THAT(tessera(cached_ + "--ids 5,7,42,3 --max-new 3 --quiet").out, testing::Eq("96 100 100\n"));
}

// What runs is an ordinary model with ordinary states: it can be split, written, proved and run.
TEST_F(GenerateCommand, writes_the_model_that_holds_caches) {
  const std::string step = (folder_ / "step.onnx").string(), out = (folder_ / "out").string();
  EXPECT_EQ(tessera(cached_ + "--emit " + step + " --batch 2 --capacity 16").code, 0);
  const std::string states = " --state 'past.*=next.past.*' ";
  const Ran shard = tessera("shard " + step + states + "--mesh dp=2,tp=2 -o " + out);
  EXPECT_EQ(shard.code, 0) << shard.err;
  EXPECT_EQ(tessera("check " + out).code, 0);
  const auto list = [](std::vector<int64_t> ids) {
    return Tensor::of(DType::int64, {static_cast<int64_t>(ids.size())}, ids);
  };
  // Two texts of 2 tokens, then one token more for each.
  const auto run = [&](const std::string& what) {
    Tensor ids = Tensor::of<int64_t>(DType::int64, {2, 2}, {11, 2, 4, 6});
    write_npz(folder_ / "1.npz", {{"input_ids", ids}, {"tessera.held", list({0, 0})}, {"tessera.last", list({1, 1})}});
    ids = Tensor::of<int64_t>(DType::int64, {2, 1}, {7, 54});
    write_npz(folder_ / "2.npz", {{"input_ids", ids}, {"tessera.held", list({2, 2})}, {"tessera.last", list({0, 0})}});
    const std::string caches = (folder_ / "caches.npz").string(), answer = (folder_ / "answer.npz").string();
    Ran ran = tessera("run " + what + "--inputs " + (folder_ / "1.npz").string() + " --save-states " + caches);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(read_npz(caches).at("past.0.key").dims, (Dims{2, 2, 16, 8}));
    ran = tessera("run " + what + "--inputs " + (folder_ / "2.npz").string() + " --load-states " + caches +
                  " --outputs " + answer);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_npz(answer).at("logits");
  };
  const Tensor whole = run(step + states), split = run(out + " ");
  ASSERT_EQ(whole.dims, (Dims{2, 1, 101}));
  for (int64_t i = 0; i < whole.count(); ++i) ASSERT_NEAR(split.as<float>()[i], whole.as<float>()[i], 1e-4) << i;
  EXPECT_THAT(mistake(cached_ + "--emit " + step), HasSubstr("--emit needs --batch and --capacity"));
}

TEST_F(GenerateCommand, lets_caches_grow) {
  const json grown = parsed(cached_ + "--ids 5,7,42,3 --max-new 20 --capacity 7 --grow --mesh tp=2");
  const json whole = parsed(cached_ + "--ids 5,7,42,3 --max-new 20");
  EXPECT_EQ(grown["texts"], whole["texts"]);
  EXPECT_EQ(grown["capacity"], 28);
  EXPECT_EQ(whole["capacity"], 24);
  EXPECT_THAT(mistake(cached_ + "--ids 5,7 --max-new 20 --capacity 6"), HasSubstr("but caches hold 6"));
  // Told before any model is loaded.
  const std::string missing = "generate " + (folder_ / "missing.onnx").string() + " --grow ";
  EXPECT_THAT(mistake(missing + "--ids 5,7 --mesh tp=2 --spawn 2"),
              HasSubstr("caches of ranks that are processes do not grow"));
  EXPECT_THAT(mistake(missing + "--ids 5,7 --cache none"), HasSubstr("only caches that are held grow"));
  EXPECT_THAT(mistake(missing + "--ids 5,7 --cache handed"), HasSubstr("only caches that are held grow"));
  EXPECT_THAT(mistake(missing + "--emit step.onnx --batch 1 --capacity 8"), HasSubstr("leave --grow out"));
}

// Prompts say how large a run is.
TEST_F(GenerateCommand, knows_all_sizes) {
  for (const char* cache : {"held", "handed", "none"}) {
    const Ran ran = tessera(cached_ + "--ids 5,7,42,3 --max-new 3 --cache " + std::string(cache));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, testing::Not(HasSubstr("default sizes"))) << cache;
  }
}

TEST_F(GenerateCommand, draws_by_the_seed) {
  const auto drawn = [&](const std::string& seed) {
    return parsed(tiny_ + "--text A --max-new 12 --temperature 2 --top-p 0.9 --top-k 50 --seed " + seed)["texts"];
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
}

TEST_F(GenerateCommand, names_what_is_wrong) {
  EXPECT_THAT(mistake(tiny_), HasSubstr("give prompts in one way"));
  EXPECT_THAT(mistake(tiny_ + "--ids 1 --text a"), HasSubstr("give prompts in one way"));
  EXPECT_THAT(mistake(tiny_ + "--ids 1,,2"), HasSubstr("'1,,2' is not a list of tokens"));
  EXPECT_THAT(mistake(cached_ + "--text a"), HasSubstr("--text needs a byte-level model, with 256 tokens"));
  EXPECT_THAT(mistake(tiny_ + "--ids 256"), HasSubstr("the model's tokens are 0 to 255"));
  EXPECT_THAT(mistake(tiny_ + "--ids 1 --max-new 9223372036854775807"),
              HasSubstr("max_new is 9223372036854775807; it must be at most "));
  EXPECT_THAT(mistake(cached_ + "--ids 1 --stop 7,101"), HasSubstr("the stop token 101 is not a token of the model"));
  // Told before any model is loaded.
  const std::string missing = "generate " + (folder_ / "missing.onnx").string() + " ";
  EXPECT_THAT(mistake(missing + "--ids 1 --top-p 2"), HasSubstr("--top-p: '2' must be a number above 0 and at most 1"));
  EXPECT_THAT(mistake(missing + "--ids 1 --top-p nan"), HasSubstr("--top-p: 'nan' must be a number above 0"));
  EXPECT_THAT(mistake(missing + "--text ''"), HasSubstr("prompt 0 is empty"));
  EXPECT_THAT(mistake(missing + "--ids 1 --max-new 2147483647"),
              HasSubstr("a capacity of 2147483648 tokens is too large"));
  EXPECT_THAT(mistake(missing + "--ids 1,2 --capacity 4 --max-new 3"),
              HasSubstr("prompt 0 has 2 tokens and may gain 3, but caches hold 4; give them a larger capacity"));
  const std::string emit = "--emit " + (folder_ / "step.onnx").string() + " --batch 1 --capacity ";
  EXPECT_THAT(mistake(cached_ + emit + "16 --ids 1"), HasSubstr("--emit generates nothing; give no prompts with it"));
  EXPECT_THAT(mistake(cached_ + emit + "1"), HasSubstr("a capacity of 1 token is too small"));
  write_npz(folder_ / "other.npz", {{"other", Tensor::of<int64_t>(DType::int64, {1}, {1})}});
  EXPECT_THAT(mistake(cached_ + emit + "16 --inputs " + (folder_ / "other.npz").string()), HasSubstr("'other'"));
  EXPECT_THAT(mistake("generate " + model_ + " --ids 1"), HasSubstr("no input 'input_ids'"));
}

}  // namespace
}  // namespace tessera
