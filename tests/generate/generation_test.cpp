// Texts continued by decoders: with caches and without, on meshes, in batches.
#include "tessera/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "api/small_model.h"
#include "error_of.h"
#include "generate/decoder_texts.h"
#include "io/temporary_folder.h"
#include "tessera/io/npy.h"
#include "tessera/io/npz.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::TestWithParam;
using Prompts = std::vector<std::vector<int64_t>>;

const Prompts kPrompts = {{5, 7, 42, 3}, {11, 2}, {9, 9, 60, 1, 30, 31, 8}};

Model model(const std::string& name) {
  return Model::load(std::string(TESSERA_TEST_DATA) + "/models/" + name + "/model.onnx");
}
Model tiny() {
  return Model::load(std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx");
}

Prompts ids_of(const Generation& made) {
  Prompts ids;
  for (const GeneratedText& text : made.texts) ids.push_back(text.ids);
  return ids;
}

Prompts continued(const Model& model, const std::string& mesh, CacheForm best, int64_t batch = 1,
                  const GenerationOptions& asked = {.max_new = 12}, const Plan& plan = {}) {
  Generator generator(model, Mesh::parse(mesh), plan, {.batch = batch, .capacity = 24, .best = best});
  EXPECT_EQ(generator.form(), best) << generator.reason();
  return ids_of(generator.generate(kPrompts, asked));
}

using test::error_of;

class Decoders : public TestWithParam<const char*> {};

// The text that a run over the whole text for each token gives is the right one.
TEST_P(Decoders, give_the_text_that_they_give_without_a_cache) {
  const Model decoder = model(GetParam());
  const Prompts wanted = continued(decoder, "", CacheForm::none);
  for (const char* mesh : {"", "tp=2", "tp=3", "dp=2"}) {
    EXPECT_EQ(continued(decoder, mesh, CacheForm::held), wanted) << mesh;
    EXPECT_EQ(continued(decoder, mesh, CacheForm::held, 3), wanted) << mesh << ", texts of three lengths at once";
  }
  EXPECT_EQ(continued(decoder, "dp=2,tp=2", CacheForm::held, 2), wanted);
}

// Each rank has some of the places for tokens, 24 in all, and writes those tokens that go there.
TEST_P(Decoders, give_the_same_text_where_caches_are_split_by_positions) {
  const Model decoder = model(GetParam());
  const Prompts wanted = continued(decoder, "", CacheForm::none);
  Plan plan{.presets = "none"};
  const bool has_own = std::string_view(GetParam()).ends_with("-cache");
  plan.annotations.push_back({has_own ? "past*=[?,?,cp,-]" : "cache*=[?,?,cp,-]", "annotation", false});
  for (const char* mesh : {"cp=2", "cp=5", "cp=3,tp=2"})
    for (const int64_t batch : {1, 3})
      EXPECT_EQ(continued(decoder, mesh, CacheForm::held, batch, {.max_new = 12}, plan), wanted) << mesh;
  plan.presets = "megatron:tp";
  EXPECT_EQ(continued(decoder, "cp=3,tp=2", CacheForm::held, 3, {.max_new = 12}, plan), wanted);
}

INSTANTIATE_TEST_SUITE_P(Models, Decoders,
                         testing::Values("llama-cache", "named-cache", "window-cache", "llama", "gpt2", "gpt2-sdpa"));

TEST(Generation, hands_caches_from_run_to_run) {
  const Prompts wanted = continued(model("llama-cache"), "", CacheForm::none);
  EXPECT_EQ(continued(model("llama-cache"), "", CacheForm::handed), wanted);
  EXPECT_EQ(continued(model("llama-cache"), "tp=2", CacheForm::handed, 3), wanted) << "texts of one length at once";
}

// Where a query sees more than a cache keeps, the cache's own form decides what that is.
TEST(Generation, hands_on_caches_that_forget) {
  const test::TemporaryFolder folder;
  const Model forgetful = Model::load(test::write_model(folder, test::windowed_decoder(3, 8), 5));
  Generator generator(forgetful, Mesh::parse(""), {}, {.capacity = 24, .caches = {"past=present"}});
  EXPECT_EQ(generator.form(), CacheForm::handed);
  EXPECT_THAT(generator.reason(), HasSubstr("the cache 'past' keeps 3 tokens"));
  const Prompts prompts = {{1, 2, 3, 4, 5}};
  const Prompts made = ids_of(generator.generate(prompts, {.max_new = 5}));
  Generator split(forgetful, Mesh::parse("tp=2"), {}, {.capacity = 24, .caches = {"past=present"}});
  EXPECT_EQ(ids_of(split.generate(prompts, {.max_new = 5})), made);
  // The first token needs no cache.
  Generator without(forgetful, Mesh::parse(""), {}, {.caches = {"past=present"}, .best = CacheForm::none});
  EXPECT_EQ(ids_of(without.generate(prompts, {.max_new = 1}))[0][0], made.at(0).at(0));
}

// The forms in which other tools write caches.
TEST(Generation, holds_caches_of_windows_groups_and_branches) {
  const Prompts prompts = {{5, 7, 4, 3}, {1, 2}, {0, 0, 6, 1, 3, 3, 8, 2, 5, 7}};
  for (const auto& [text, caches] :
       {std::pair<std::string, std::vector<std::string>>{test::windowed_decoder(3, 4), {"past=present"}},
        {test::grouped_decoder(), {}},
        {test::grouped_decoder("do_rotary = 1, local_window_size = 4"), {}},
        {test::branched_decoder(), {}}}) {
    const test::TemporaryFolder folder;
    const Model decoder = Model::load(test::write_model(folder, text, 5));
    const auto made = [&](CacheForm best, const char* mesh, int64_t batch) {
      Generator generator(decoder, Mesh::parse(mesh), {},
                          {.batch = batch, .capacity = 24, .caches = caches, .best = best});
      EXPECT_EQ(generator.form(), best) << generator.reason();
      return ids_of(generator.generate(prompts, {.max_new = 12}));
    };
    const Prompts wanted = made(CacheForm::none, "", 1);
    EXPECT_EQ(made(CacheForm::handed, "", 1), wanted) << text;
    for (const char* mesh : {"", "tp=2", "dp=3"})
      for (const int64_t batch : {1, 3}) EXPECT_EQ(made(CacheForm::held, mesh, batch), wanted) << mesh << text;
    for (const std::vector<int64_t>& ids : wanted)
      EXPECT_GT(std::set<int64_t>(ids.begin(), ids.end()).size(), 1u) << "a text that says nothing: " << text;
  }
}

TEST(Generation, draws_the_same_tokens_on_any_mesh) {
  const GenerationOptions asked{.max_new = 12, .sampling = {.temperature = 2, .top_k = 40, .top_p = 0.95, .seed = 3}};
  const Prompts wanted = continued(tiny(), "", CacheForm::none, 1, asked);
  EXPECT_EQ(continued(tiny(), "", CacheForm::held, 3, asked), wanted);
  EXPECT_EQ(continued(tiny(), "tp=2", CacheForm::held, 2, asked), wanted);
  EXPECT_NE(continued(tiny(), "", CacheForm::held, 3, {.max_new = 12}), wanted);
}

TEST(Generation, holds_a_share_of_each_cache) {
  const GeneratorOptions options{.batch = 4, .capacity = 32};
  const Generator whole(model("llama-cache"), Mesh::parse(""), {}, options);
  // 2 layers, keys and values, [4, 2, 32, 8] of float32.
  EXPECT_EQ(whole.cache_bytes(), 2 * 2 * 4 * 2 * 32 * 8 * 4);
  EXPECT_FALSE(whole.given_caches());
  EXPECT_EQ(whole.vocabulary(), 101);
  for (const char* mesh : {"tp=2", "dp=2"})
    EXPECT_EQ(Generator(model("llama-cache"), Mesh::parse(mesh), {}, options).cache_bytes(), whole.cache_bytes() / 2)
        << mesh;
  EXPECT_EQ(Generator(model("llama-cache"), Mesh::parse("dp=4,tp=2"), {}, options).cache_bytes(),
            whole.cache_bytes() / 8);
  Plan by_positions{.presets = "none"};
  by_positions.annotations.push_back({"past*=[-,-,cp,-]", "annotation", false});
  EXPECT_EQ(Generator(model("llama-cache"), Mesh::parse("cp=8"), by_positions, options).cache_bytes(),
            whole.cache_bytes() / 8)
      << "more ranks than heads of keys";
  Plan narrow;
  narrow.dtype = DType::bfloat16;
  EXPECT_EQ(Generator(model("llama-cache"), Mesh::parse(""), narrow, options).cache_bytes(), whole.cache_bytes() / 2);
}

TEST(Generation, appends_in_place) {
  const Generator generator(model("llama-cache"), Mesh::parse("tp=2"), {}, {.batch = 1, .capacity = 4096});
  // A second buffer of any state would add half of the caches.
  const int64_t peak = generator.program().peak_bytes(0, {{"sequence", 1}});
  EXPECT_LT(peak, generator.cache_bytes() + 400'000);
  EXPECT_GT(peak, generator.cache_bytes());
}

// Prompts, too, may be longer than what there is room for at first.
TEST(Generation, goes_on_when_caches_have_grown) {
  for (const char* mesh : {"", "tp=2", "dp=2,tp=2"})
    for (const char* name : {"llama-cache", "gpt2"}) {
      const GeneratorOptions small{.batch = 2, .capacity = 5, .grows = true};
      Generator generator(model(name), Mesh::parse(mesh), {}, small);
      const int64_t bytes = generator.cache_bytes();
      EXPECT_EQ(ids_of(generator.generate(kPrompts, {.max_new = 12})),
                continued(model(name), "", CacheForm::none, 1, {.max_new = 12}))
          << mesh;
      EXPECT_EQ(generator.capacity(), 20) << "for 18 tokens, 7 of them a prompt's";
      EXPECT_EQ(generator.cache_bytes(), 4 * bytes);
      EXPECT_EQ(generator.form(), CacheForm::held);
    }
  EXPECT_NO_THROW(require_asked({{1, 2}}, {.max_new = 100}, {.capacity = 5, .grows = true}));
  EXPECT_THAT(error_of([] {
                require_asked({{1, 2}}, {.max_new = 100}, {.capacity = 5});
              }),
              HasSubstr("but caches hold 5; give them a larger capacity"));
}

// Caches that would be too large keep the room that they have, for other texts.
TEST(Generation, goes_on_when_caches_could_not_grow) {
  const auto peak = [](int64_t capacity) {
    return Generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = capacity})
        .program()
        .peak_bytes(0, {{"sequence", 1}});
  };
  CompileOptions compiled;
  compiled.memory_limit = static_cast<size_t>((peak(64) + peak(128)) / 2);
  Generator generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = 64, .grows = true}, compiled);
  const std::vector<int64_t> prompt(58, 5);
  EXPECT_THAT(error_of([&] { generator.generate({prompt}, {.max_new = 10}); }), HasSubstr("memory"));
  EXPECT_EQ(generator.capacity(), 64);
  EXPECT_EQ(
      ids_of(generator.generate({prompt}, {.max_new = 5})),
      ids_of(
          Generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = 64}).generate({prompt}, {.max_new = 5})));
}

TEST(Generation, runs_in_bfloat16) {
  Plan narrow;
  narrow.dtype = DType::bfloat16;
  const Prompts made = continued(tiny(), "", CacheForm::held, 3, {.max_new = 12}, narrow);
  EXPECT_EQ(continued(tiny(), "", CacheForm::none, 1, {.max_new = 12}, narrow), made);
}

// Keys and values of 16 bits beside float32 weights: half the bytes, no copy in another type, and one text on any mesh.
TEST(Generation, holds_caches_of_another_type) {
  const auto made = [](const Model& decoder, const char* mesh, std::optional<DType> type, int64_t capacity = 24) {
    GeneratorOptions options{.batch = 3, .capacity = capacity, .grows = capacity < 24};
    options.cache_dtype = type;
    Generator generator(decoder, Mesh::parse(mesh), {}, options);
    EXPECT_EQ(generator.form(), CacheForm::held);
    return std::pair(ids_of(generator.generate(kPrompts, {.max_new = 12})), generator.cache_bytes());
  };
  for (const char* name : {"llama-cache", "named-cache", "window-cache", "llama", "gpt2", "gpt2-sdpa"}) {
    SCOPED_TRACE(name);
    const Model decoder = model(name);
    const auto wide = made(decoder, "", std::nullopt);
    EXPECT_EQ(made(decoder, "", DType::float32), wide);
    for (const DType type : {DType::float16, DType::bfloat16}) {
      const auto [texts, bytes] = made(decoder, "", type);
      EXPECT_EQ(bytes, wide.second / 2);
      if (type == DType::float16) {
        EXPECT_EQ(texts, wide.first) << "roundings of 2^-12 change no choice here";
      }
      for (const char* mesh : {"tp=2", "tp=3", "dp=2,tp=2"}) EXPECT_EQ(made(decoder, mesh, type).first, texts) << mesh;
      EXPECT_EQ(made(decoder, "tp=2", type, 5).first, texts) << "caches that grow";
    }
  }
  GeneratorOptions options{.batch = 1, .capacity = 4096};
  options.cache_dtype = DType::float16;
  const Generator generator(model("llama-cache"), Mesh::parse("tp=2"), {}, options);
  EXPECT_LT(generator.program().peak_bytes(0, {{"sequence", 1}}), generator.cache_bytes() + 400'000);
  for (const TensorInfo& output : held_decoder(model("llama-cache"), options).outputs())
    EXPECT_EQ(output.dtype, output.name == "logits" ? DType::float32 : DType::float16) << output.name;
}

TEST(Generation, refuses_types_that_caches_cannot_have) {
  GeneratorOptions options;
  options.cache_dtype = DType::float16;
  options.best = CacheForm::none;
  const auto refused = [&](const Model& decoder, const Plan& plan = {}) {
    return error_of([&] { Generator(decoder, Mesh::parse(""), plan, options); });
  };
  EXPECT_THAT(refused(tiny()), HasSubstr("only held caches may have a type of their own"));
  options.best = CacheForm::held;
  options.cache_dtype = DType::float32;
  Plan narrow;
  narrow.dtype = DType::bfloat16;
  EXPECT_THAT(refused(tiny(), narrow), HasSubstr("computes in bfloat16 has no float32 keys"));
  options.cache_dtype = DType::int64;
  EXPECT_THAT(refused(tiny()), HasSubstr("caches cannot be stored in int64; use float32, bfloat16 or float16"));
}

TEST(Generation, ends_a_text_with_a_stop_token_and_goes_on_with_others) {
  Generator generator(model("llama-cache"), Mesh::parse(""), {}, {.batch = 3, .capacity = 24});
  const Prompts whole = ids_of(generator.generate(kPrompts, {.max_new = 12}));
  const int64_t stop = whole[0][2];
  std::vector<std::pair<size_t, int64_t>> seen;
  const Generation made = generator.generate(kPrompts, {.max_new = 12, .stop = {stop}},
                                             [&](size_t text, int64_t token) { seen.emplace_back(text, token); });
  size_t tokens = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto end = std::find(whole[i].begin(), whole[i].end(), stop);
    EXPECT_EQ(made.texts[i].stopped, end != whole[i].end()) << i;
    EXPECT_EQ(made.texts[i].ids, std::vector<int64_t>(whole[i].begin(), end == whole[i].end() ? end : end + 1)) << i;
    tokens += made.texts[i].ids.size();
  }
  EXPECT_EQ(seen.size(), tokens);
  EXPECT_EQ(made.prefill_tokens, 13);
}

// A running sum over the text mixes tokens outside of Attention: no cache would hold what it needs.
TEST(Generation, runs_over_the_whole_text_where_a_cache_would_be_wrong) {
  const test::TemporaryFolder folder;
  constexpr std::string_view kMixing = R"(
    g (int64[batch, sequence] input_ids) => (float[batch, sequence, 9] logits)
      <float[9, 8] table, float[8, 9] head, int64 axis = {1}> {
      x = Gather <axis = 0> (table, input_ids)
      sums = CumSum (x, axis)
      heads = Unsqueeze (sums, axis_list)
      y = Attention <is_causal = 1> (heads, heads, heads)
      rows = Squeeze (y, axis_list)
      logits = MatMul (rows, head)
    })";
  std::string text(kMixing);
  text.replace(text.find("int64 axis = {1}"), 16, "int64 axis = {1}, int64[1] axis_list = {1}");
  const Model mixing = Model::load(test::write_model(folder, text, 5));
  Generator generator(mixing, Mesh::parse(""), {}, {.capacity = 24});
  EXPECT_EQ(generator.form(), CacheForm::none);
  EXPECT_THAT(generator.reason(), HasSubstr("mixes tokens along dimension 1 of 'x'"));
  EXPECT_EQ(generator.generate({{1, 2, 3}}, {.max_new = 5}).texts[0].ids.size(), 5u);
}

// Positions counted from the end of a mask, or by its sum: a state of a fixed capacity has no such extents.
TEST(Generation, hands_on_caches_where_positions_are_counted_along_the_mask) {
  for (const char* positions : {test::kCountedFromTheEnd, test::kCountedInAll}) {
    const test::TemporaryFolder folder;
    const std::string text = test::counted_decoder(positions);
    const Model counting = Model::load(test::write_model(folder, text, 5));
    const auto made = [&](CacheForm best) {
      Generator generator(counting, Mesh::parse(""), {}, {.capacity = 24, .caches = {"past=present"}, .best = best});
      EXPECT_EQ(generator.form(), best == CacheForm::held ? CacheForm::handed : best) << generator.reason();
      return ids_of(generator.generate({{1, 2, 3}, {4, 0}}, {.max_new = 12}));
    };
    EXPECT_EQ(made(CacheForm::held), made(CacheForm::none)) << positions;
  }
}

// Some exports give the logits of the last token only.
TEST(Generation, takes_logits_of_the_last_token_alone) {
  const auto made = [](const std::string& count, const std::string& taken) {
    const test::TemporaryFolder folder;
    const std::string text = R"(
    g (int64[batch, sequence] input_ids) => (float[batch, )" +
                             count + R"(, 6] logits)
      <float[6, 8] table, float[8, 6] head, int64[1] one = {1}, int64[1] last = {-1}, int64[2] two = {-2, -1}> {
      x = Gather <axis = 0> (table, input_ids)
      heads = Unsqueeze (x, one)
      y = Attention <is_causal = 1> (heads, heads, heads)
      rows = Squeeze (y, one)
      )" + taken + R"(
      logits = MatMul (taken, head)
    })";
    const Model decoder = Model::load(test::write_model(folder, text, 5));
    Generator generator(decoder, Mesh::parse(""), {}, {.batch = 2, .capacity = 24, .best = CacheForm::none});
    return ids_of(generator.generate({{1, 2, 3, 4, 5}, {5, 1, 3, 0, 2}}, {.max_new = 5}));
  };
  EXPECT_EQ(made("1", "taken = Gather <axis = 1> (rows, last)"), made("sequence", "taken = Identity (rows)"));
  EXPECT_THAT(error_of([&] { made("2", "taken = Gather <axis = 1> (rows, two)"); }),
              HasSubstr("logits are of 2 tokens, but the run has at least 5"));
}

TEST(Generation, refuses_caches_of_other_forms) {
  for (const std::string cache : {"2, batch, 1, past, 4", "batch, past, 4", "batch, 1, 7, 4"}) {
    const test::TemporaryFolder folder;
    const Model other = Model::load(test::write_model(folder, R"(
    g (int64[batch, sequence] input_ids, float[)" + cache + R"(] past_0)
      => (float[batch, sequence, 4] logits, float[)" + cache + R"(] present_0) <float[9, 4] table> {
      logits = Gather <axis = 0> (table, input_ids)
      present_0 = Relu (past_0)
    })",
                                                      5));
    for (CacheForm best : {CacheForm::held, CacheForm::none})
      EXPECT_THAT(error_of([&] { Generator(other, Mesh::parse(""), {}, {.best = best}); }),
                  HasSubstr("the cache 'past_0' float32 [" + cache + "] must be [batch, heads, past, width]"));
  }
}

TEST(Generation, refuses_requests_before_it_runs) {
  const auto asked = [](const Prompts& prompts, const GenerationOptions& options) {
    return error_of([&] { require_asked(prompts, options); });
  };
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(asked({{1}}, {.max_new = 0}), HasSubstr("max_new is 0"));
  EXPECT_THAT(asked({{1}}, {.max_new = kLargest}), HasSubstr("; it must be at most 2147483647"));
  EXPECT_THAT(asked({{1}, {}}, {}), HasSubstr("prompt 1 is empty"));
  EXPECT_THAT(asked({{1}}, {.sampling = {.top_p = 2}}), HasSubstr("top_p is 2;"));
  EXPECT_THAT(asked({{1}}, {.max_new = 2'147'483'647}), testing::Eq("no error"));
  Generator generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = 8});
  EXPECT_THAT(error_of([&] { generator.require({{1}}, {.max_new = 2'147'483'647}); }), HasSubstr("but caches hold 8"));
  EXPECT_THAT(error_of([&] { generator.require({{1}}, {.sampling = {.top_p = 2}}); }), HasSubstr("top_p is 2"));
  for (int64_t stop : {-1, 101})
    EXPECT_THAT(error_of([&] {
                  generator.require({{1}}, {.max_new = 2, .stop = {7, stop}});
                }),
                HasSubstr("the stop token " + std::to_string(stop) +
                          " is not a token of the model, whose tokens are 0 to 100"));
  EXPECT_THAT(error_of([&] { Generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = kLargest}); }),
              HasSubstr("tokens is too large; give at most 2147483647"));
  // Too large for any memory: a reason to stop, and none to hand caches on.
  EXPECT_THAT(error_of([&] {
                Generator(model("llama-cache"), Mesh::parse(""), {},
                          {.batch = int64_t{1} << 40, .capacity = 2'147'483'647});
              }),
              HasSubstr("[memory]"));
}

// ALiBi: scores gain a multiple of each key's place.
TEST(Generation, holds_caches_beside_a_mask_of_the_places_of_keys) {
  const test::TemporaryFolder folder;
  const Model placed = Model::load(test::write_model(folder, R"(
    g (int64[batch, sequence] input_ids) => (float[batch, sequence, 9] logits)
      <float[9, 8] table, float[8, 9] head, float[2, 1, 1] slopes, int64[4] apart = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8},
       int64 zero = {0}, int64 one = {1}> {
      x = Gather <axis = 0> (table, input_ids)
      rows = Reshape (x, apart)
      heads = Transpose <perm = [0, 2, 1, 3]> (rows)
      length = Shape <start = 1, end = 2> (input_ids)
      count = Squeeze (length)
      places = Range (zero, count, one)
      numbers = Cast <to = 1> (places)
      bias = Mul (slopes, numbers)
      y = Attention <is_causal = 1> (heads, heads, heads, bias)
      back = Transpose <perm = [0, 2, 1, 3]> (y)
      all = Reshape (back, flat)
      logits = MatMul (all, head)
    })",
                                                     5));
  const Prompts prompts = {{1, 2, 3, 4, 5}, {8, 0, 3}, {7}};
  const auto texts = [&](const char* mesh, CacheForm form, int64_t batch) {
    Generator generator(placed, Mesh::parse(mesh), {}, {.batch = batch, .capacity = 16, .best = form});
    EXPECT_EQ(generator.form(), form) << generator.reason();
    return ids_of(generator.generate(prompts, {.max_new = 10}));
  };
  const Prompts wanted = texts("", CacheForm::none, 1);
  for (const char* mesh : {"", "tp=2", "dp=2"}) {
    EXPECT_EQ(texts(mesh, CacheForm::held, 1), wanted) << mesh;
    EXPECT_EQ(texts(mesh, CacheForm::held, 3), wanted) << mesh;
  }
}

// A mask of its own may show what no other mask shows; and an encoder's tokens see later ones.
TEST(Generation, gives_no_cache_to_a_model_that_sees_later_tokens) {
  const test::TemporaryFolder folder;
  const Model seeing = Model::load(test::write_model(folder, R"(
    g (int64[batch, sequence] input_ids) => (float[batch, sequence, 9] logits)
      <float[9, 8] table, float[8, 9] head, int64[1] one = {1}> {
      x = Gather <axis = 0> (table, input_ids)
      heads = Unsqueeze (x, one)
      y = Attention (heads, heads, heads)
      rows = Squeeze (y, one)
      logits = MatMul (rows, head)
    })",
                                                     5));
  const Generator generator(seeing, Mesh::parse(""), {}, {.capacity = 24});
  EXPECT_EQ(generator.form(), CacheForm::none);
  EXPECT_THAT(generator.reason(), HasSubstr("sees later tokens"));
}

TEST(Generation, names_what_it_lacks) {
  const auto made = [](const Model& model, const GeneratorOptions& options = {}) {
    return error_of([&] { Generator(model, Mesh::parse(""), {}, options); });
  };
  EXPECT_THAT(made(model("mlp")), HasSubstr("no input 'input_ids' of integers [batch, sequence]"));
  EXPECT_THAT(made(model("llama-cache"), {.caches = {"cache.*=present.*"}}),
              HasSubstr("'cache.*=present.*' pairs no input with an output"));
  EXPECT_THAT(made(model("llama-cache"), {.caches = {"past.0.*=present.0.*"}}),
              HasSubstr("inputs that generation does not provide: 'past.1.key'"));
  Generator generator(model("llama-cache"), Mesh::parse(""), {}, {.capacity = 8});
  EXPECT_THAT(error_of([&] {
                generator.generate({{1, 2, 3}}, {.max_new = 6});
              }),
              HasSubstr("prompt 0 has 3 tokens and may gain 6, but caches hold 8"));
  EXPECT_THAT(error_of([&] { generator.generate({{1}, {}}, {.max_new = 2}); }), HasSubstr("prompt 1 is empty"));
  EXPECT_THAT(error_of([&] { generator.generate({{101}}, {.max_new = 2}); }), HasSubstr("the token 101"));
}

TEST(Prompts, are_arrays_in_the_order_of_their_numbers) {
  const test::TemporaryFolder folder;
  const auto list = [](std::vector<int64_t> ids) {
    return Tensor::of(DType::int64, {static_cast<int64_t>(ids.size())}, ids);
  };
  write_npz(folder / "p.npz", {{"ids_10", list({1})},
                               {"ids_2", list({2, 3})},
                               {"ids_0", Tensor::of<int32_t>(DType::int32, {2, 2}, {4, 5, 6, 7})}});
  EXPECT_THAT(read_prompts(folder / "p.npz"),
              ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7), ElementsAre(2, 3), ElementsAre(1)));
  write_npy(folder / "p.npy", list({8, 9}));
  EXPECT_THAT(read_prompts(folder / "p.npy"), ElementsAre(ElementsAre(8, 9)));
  write_npz(folder / "f.npz", {{"x", Tensor::zeros(DType::float32, {2})}});
  EXPECT_THAT(error_of([&] { read_prompts(folder / "f.npz"); }), HasSubstr("the array 'x' is float32"));
}

// What a tokenizer gives, written with numpy's savez.
TEST(Prompts, are_the_ids_that_a_mask_shows) {
  const test::TemporaryFolder folder;
  const Tensor ids = Tensor::of<int64_t>(DType::int64, {2, 3}, {4, 5, 6, 7, 8, 0});
  const auto written = [&](const std::vector<std::pair<std::string, Tensor>>& arrays) {
    write_npz(folder / "p.npz", arrays);
    return folder / "p.npz";
  };
  const auto mask = [](const std::vector<int64_t>& elements) {
    return Tensor::of(DType::int64, {static_cast<int64_t>(elements.size()) / 3, 3}, elements);
  };
  EXPECT_THAT(read_prompts(written({{"attention_mask", mask({1, 1, 1, 1, 1, 0})}, {"input_ids", ids}})),
              ElementsAre(ElementsAre(4, 5, 6), ElementsAre(7, 8)));
  // Tokenizers of decoders pad at the left; some fill up to a length that no prompt has.
  EXPECT_THAT(read_prompts(written({{"attention_mask", mask({0, 0, 1, 0, 1, 1})}, {"input_ids", ids}})),
              ElementsAre(ElementsAre(6), ElementsAre(8, 0)));
  EXPECT_THAT(read_prompts(written({{"attention_mask", mask({0, 1, 0, 1, 1, 1})}, {"input_ids", ids}})),
              ElementsAre(ElementsAre(5), ElementsAre(7, 8, 0)));
  EXPECT_THAT(read_prompts(written({{"token_type_ids", mask({0, 0, 0, 0, 0, 0})}, {"input_ids", ids}})),
              ElementsAre(ElementsAre(4, 5, 6), ElementsAre(7, 8, 0)));
  const auto error = [&](const std::vector<std::pair<std::string, Tensor>>& arrays) {
    return error_of([&] { read_prompts(written(arrays)); });
  };
  EXPECT_THAT(error({{"attention_mask", mask({1, 1, 1, 1, 0, 1})}, {"input_ids", ids}}),
              HasSubstr("the array 'attention_mask' hides tokens in the middle of prompt 1; padding must be before"));
  EXPECT_THAT(error({{"attention_mask", mask({1, 2, 0, 1, 1, 1})}, {"input_ids", ids}}),
              HasSubstr("the array 'attention_mask' holds 2 for prompt 0; it must hold 1 for each token"));
  EXPECT_THAT(error({{"attention_mask", mask({1, 1, 1})}, {"input_ids", ids}}),
              HasSubstr("the array 'attention_mask' is int64 [1, 3]; it must be integers or bools [2, 3]"));
  EXPECT_THAT(error({{"attention_mask", mask({1, 1, 1})}, {"a", mask({1, 2, 3})}}),
              HasSubstr("the array 'attention_mask' is a mask, not a prompt; keep the ids alone"));
}

}  // namespace
}  // namespace tessera
