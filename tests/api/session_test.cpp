#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <stop_token>
#include <thread>

#include "api/in_parts.h"
#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/compare.h"
#include "tessera/inspect.h"

namespace tessera {
namespace {

using test::kPair;
using test::TemporaryFolder;
using test::write_model;
using test::in_parts::message_of;
using testing::HasSubstr;

Tensor row(float scale) {
  Tensor x = Tensor::zeros(DType::float32, {3, 8});
  auto* elements = reinterpret_cast<float*>(x.mutable_data());
  for (int i = 0; i < 24; ++i) elements[i] = scale * static_cast<float>(i % 5 - 2);
  return x;
}

TEST(Session, gives_the_answer_of_one_device_on_any_mesh) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, kPair));
  Tensors inputs = {{"x", row(0.5f)}};
  Tensors expected = Session(compile(model, Mesh())).run(inputs);
  for (const char* mesh : {"tp=1", "tp=2", "tp=3", "dp=2", "dp=2,tp=2", "dp=4"}) {
    Tensors actual = Session(compile(model, Mesh::parse(mesh))).run(inputs);
    for (const Difference& difference : compare(expected, actual))
      EXPECT_TRUE(difference.pass) << mesh << " " << difference.name << " " << difference.max_rel;
  }
}

TEST(Session, gives_the_same_answer_if_ranks_do_not_spin) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  const Tensors inputs = {{"x", row(0.5f)}};
  SessionOptions options;
  options.spin = false;
  const Program program = compile(model, Mesh::parse("tp=2"));
  test::expect_same(Session(program).run(inputs), Session(program, options).run(inputs));
}

// The graph's name shifts what follows it in the file. UndefinedBehaviorSanitizer sees a float that is read askew.
TEST(Session, weights_may_be_anywhere_in_the_file) {
  const std::string model = R"( (int64[batch] ids) => (float[batch, 2048] y)
    <float[64, 32] table, float[32, 2048] up, float[2048] bias> {
      x = Gather (table, ids)
      h = MatMul (x, up)
      y = Add (h, bias)
    })";
  const Tensors inputs = {{"ids", Tensor::of<int64_t>(DType::int64, {4}, {0, 63, 7, 32})}};
  for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::bfloat16)}) {
    Plan plan;
    plan.dtype = dtype;
    for (const char* mesh : {"tp=1", "tp=2", "dp=2"}) {
      std::optional<Tensors> expected;
      for (const char* name : {"m", "mo", "mod", "mode"}) {
        TemporaryFolder folder;
        const Model loaded = Model::load(write_model(folder, name + model));
        const Tensors actual = Session(compile(loaded, Mesh::parse(mesh), plan)).run(inputs);
        if (!expected) expected = actual;
        EXPECT_TRUE(compare("y", expected->at("y"), actual.at("y"), {0.0, 0.0}).pass) << mesh << " " << name;
      }
    }
  }
}

TEST(Session, can_be_called_from_several_threads) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, kPair));
  Session session(compile(model, Mesh::parse("tp=2")));
  std::vector<Tensors> expected(4), actual(4);
  for (size_t i = 0; i < 4; ++i) expected[i] = session.run({{"x", row(static_cast<float>(i))}});
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat) actual[i] = session.run({{"x", row(static_cast<float>(i))}});
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(compare("y", expected[i].at("y"), actual[i].at("y"), {0.0, 0.0}).pass) << i;
}

TEST(Session, refuses_wrong_inputs_and_can_be_used_again) {
  TemporaryFolder folder;
  Session session(compile(Model::load(write_model(folder, kPair)), Mesh::parse("tp=2")));
  auto error_of = [&](const Tensors& inputs) -> std::string {
    try {
      session.run(inputs);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({}), HasSubstr("input 'x' (float32 [batch, 8]) is missing"));
  EXPECT_THAT(error_of({{"z", row(1)}}), HasSubstr("the model has no input 'z'; its inputs are: x"));
  EXPECT_THAT(error_of({{"x", Tensor::zeros(DType::int64, {3, 8})}}), HasSubstr("has dtype int64"));
  EXPECT_THAT(error_of({{"x", Tensor::zeros(DType::float32, {3, 9})}}), HasSubstr("dimension 1 has extent 9"));
  EXPECT_EQ(session.run({{"x", row(1)}}).size(), 1u);
}

// The sum over classes needs no row of zeros, but the label must be a class all the same.
TEST(Session, refuses_tensors_whose_bytes_do_not_fit_their_dimensions) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  Tensor cut = row(1);
  cut.bytes -= 4;
  Tensor empty = row(1);
  empty.data = nullptr;
  Session of_program(compile(model, Mesh::parse("tp=2"))), of_model(model, Mesh::parse("tp=2"));
  for (Session* session : {&of_program, &of_model})
    for (const Tensor& wrong : {cut, empty})
      EXPECT_THAT(message_of([&] { session->run({{"x", wrong}}); }), HasSubstr("'x' is float32 [3, 8]"));
  EXPECT_THAT(message_of([&] { write_tensors(folder / "x.npz", {{"x", cut}}); }), HasSubstr("'x' is float32"));
  EXPECT_THAT(message_of([&] { model.with_values({{"x", cut}}); }), HasSubstr("'x' is float32"));
}

TEST(Session, runs_beside_the_caller) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  std::vector<std::future<Tensors>> made;
  Tensors expected;
  {
    Session session(model, Mesh::parse("tp=2"));
    expected = session.run({{"x", row(1)}});
    for (int i = 0; i < 3; ++i) made.push_back(session.run_async({{"x", row(1)}}));
    made.push_back(session.run_async({}));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(compare("y", expected.at("y"), made[i].get().at("y"), {0.0, 0.0}).pass);
  EXPECT_THAT(message_of([&] { made[3].get(); }), HasSubstr("input 'x'"));
}

// As long as it is told.
constexpr const char* kLong = R"(long (float[b, 8] x, int64 n) => (float[b, 8] y) {
  y = Loop <body = body (int64 i, bool c, float[b, 8] v) => (bool c2, float[b, 8] v2) {
    v2 = Sin (v)
    c2 = Identity (c)
  }> (n, "", x)
})";

Tensors turns(int64_t count) {
  return {{"x", row(1)}, {"n", Tensor::of<int64_t>({}, {count})}};
}

std::string running_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::running) << error.what();
    return error.what();
  }
  return "";
}

TEST(Session, ends_a_run_at_its_deadline_or_when_it_is_told_to_stop) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kLong));
  constexpr int64_t kForever = int64_t{1} << 40;
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh), {.annotations = {{"x=[-, tp]"}}});
    const Tensors expected = session.run(turns(3));
    EXPECT_THAT(running_error_of([&] { session.run(turns(kForever), {.deadline = std::chrono::milliseconds(20)}); }),
                HasSubstr("deadline"));
    std::stop_source stop;
    std::future<Tensors> made = session.run_async(turns(kForever), {.stop = stop.get_token()});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
    EXPECT_THAT(running_error_of([&] { made.get(); }), HasSubstr("stopped by its caller"));
    const Tensors again = session.run(turns(3), {.deadline = std::chrono::minutes(1)});
    EXPECT_TRUE(compare("y", expected.at("y"), again.at("y"), {0.0, 0.0}).pass) << mesh;
  }
}

// A lone rank of one thread computes on the caller's.
TEST(Session, computes_alike_whatever_its_caller_has_set) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  const int threads = omp_get_max_threads();
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh), {}, {}, {.threads_per_rank = 1});
    const Tensors expected = session.run({{"x", row(0.1f)}});
    std::fesetround(FE_UPWARD);
    omp_set_num_threads(3);
    const Tensors actual = session.run({{"x", row(0.1f)}});
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    EXPECT_EQ(omp_get_max_threads(), 3);
    std::fesetround(FE_TONEAREST);
    omp_set_num_threads(threads);
    EXPECT_TRUE(compare("y", expected.at("y"), actual.at("y"), {0.0, 0.0}).pass) << mesh;
  }
}

TEST(Session, lets_runs_go_on_at_once) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kLong));
  constexpr int64_t kForever = int64_t{1} << 40;
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh), {.annotations = {{"x=[-, tp]"}}}, {}, {.concurrent_runs = 2});
    const Tensors expected = session.run(turns(3));
    std::stop_source stop;
    std::future<Tensors> made = session.run_async(turns(kForever), {.stop = stop.get_token()});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int run = 0; run < 3; ++run) {
      std::future<Tensors> beside = session.run_async(turns(3));
      if (beside.wait_for(std::chrono::minutes(1)) != std::future_status::ready) stop.request_stop();
      ASSERT_FALSE(stop.stop_requested()) << "it waits for the other";
      EXPECT_TRUE(compare("y", expected.at("y"), beside.get().at("y"), {0.0, 0.0}).pass) << mesh;
    }
    stop.request_stop();
    EXPECT_THAT(running_error_of([&] { made.get(); }), HasSubstr("stopped by its caller"));
    std::vector<std::future<Tensors>> again;
    for (int run = 0; run < 4; ++run) again.push_back(session.run_async(turns(3)));
    for (auto& each : again) EXPECT_TRUE(compare("y", expected.at("y"), each.get().at("y"), {0.0, 0.0}).pass) << mesh;
  }
  EXPECT_THAT(message_of([&] { Session(model, {}, {}, {}, {.concurrent_runs = 0}); }), HasSubstr("at least 1"));
  EXPECT_THAT(message_of([&] { Session(model, Mesh::parse("tp=2"), {}, {}, {.concurrent_runs = 200}); }),
              HasSubstr("200 runs at once of 2 ranks"));
}

TEST(Session, gives_each_of_several_callers_its_own_answer) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  constexpr size_t kCallers = 5, kSizes = 7;
  for (const size_t kept : {size_t{64}, size_t{2}}) {  // plans
    Session session(model, Mesh::parse("tp=2"), {}, {}, {.concurrent_runs = 3, .kept_plans = kept});
    std::vector<Tensors> inputs, expected;
    for (size_t i = 0; i < kSizes; ++i) {
      inputs.push_back({{"x", test::ramp({static_cast<int64_t>(i) + 1, 8}, static_cast<int64_t>(i))}});
      expected.push_back(Session(model).run(inputs.back()));
    }
    std::vector<size_t> wrong(kCallers, 0);
    std::vector<std::thread> callers;
    for (size_t caller = 0; caller < kCallers; ++caller)
      callers.emplace_back([&, caller] {
        for (size_t run = 0; run < 60; ++run) {
          const size_t i = (run * (caller + 1) + caller) % kSizes;
          wrong[caller] += !compare("y", expected[i].at("y"), session.run(inputs[i]).at("y")).pass;
        }
      });
    for (std::thread& caller : callers) caller.join();
    EXPECT_THAT(wrong, testing::Each(0u)) << kept;
  }
}

TEST(Session, refuses_calls_in_a_process_that_was_forked_since) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  auto session = std::make_unique<Session>(model, Mesh::parse("tp=2"));
  session->run({{"x", row(1)}});
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = message_of([&] { session->run({{"x", row(1)}}); }).find("forked") != std::string::npos;
    session.reset();  // neither waits for threads that are not here
    Session own(model, Mesh::parse("tp=2"));
    _exit(refused && own.run({{"x", row(1)}}).contains("y") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  session->run({{"x", row(1)}});
}

TEST(Session, writes_outputs_into_memory_of_the_caller) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kPair));
  for (const char* mesh : {"tp=1", "tp=2", "dp=3"})
    for (const char* device : {"cpu", "simulated"}) {
      Session session(model, Mesh::parse(mesh), {}, {}, {.device = device});
      const Tensors expected = session.run({{"x", row(1)}});
      const Tensor& y = expected.at("y");
      std::vector<std::byte> memory(y.bytes);
      Tensors outputs = {{"y", Tensor::borrow_mutable(y.dtype, y.dims, memory.data(), memory.size())}};
      session.run_into({{"x", row(1)}}, outputs);
      EXPECT_EQ(outputs.at("y").data, memory.data());
      EXPECT_TRUE(std::equal(memory.begin(), memory.end(), y.data)) << mesh << " " << device;
      Tensors wrong = {{"y", Tensor::zeros(y.dtype, {1})}}, unknown = {{"z", Tensor::zeros(y.dtype, {1})}};
      EXPECT_THAT(message_of([&] { session.run_into({{"x", row(1)}}, wrong); }), HasSubstr("the output 'y'"));
      EXPECT_THAT(message_of([&] { session.run_into({{"x", row(1)}}, unknown); }), HasSubstr("no output 'z'"));
      Tensors lent = {{"y", Tensor::borrow(y.dtype, y.dims, memory.data(), memory.size())}};
      EXPECT_THAT(message_of([&] { session.run_into({{"x", row(1)}}, lent); }), HasSubstr("read only"));
    }
}

TEST(Model, is_read_from_memory) {
  TemporaryFolder folder;
  Model::load(write_model(folder, kPair)).write(folder / "pair.onnx");
  std::ifstream file(folder / "pair.onnx", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const Tensors expected = Session(Model::load(folder / "pair.onnx"), Mesh()).run({{"x", row(1)}});
  const Tensors actual = Session(Model::parse(bytes, folder.path()), Mesh::parse("tp=2")).run({{"x", row(1)}});
  EXPECT_TRUE(compare("y", expected.at("y"), actual.at("y"), {0.0, 0.0}).pass);
  EXPECT_THAT(message_of([&] { Model::parse(bytes.substr(0, bytes.size() / 2)); }), HasSubstr("model in memory"));
}

TEST(Model, that_is_empty_refuses_its_calls) {
  const Model none;
  EXPECT_THAT(message_of([&] { none.inputs(); }), HasSubstr("the model is empty"));
  EXPECT_THAT(message_of([&] { compile(none, Mesh()); }), HasSubstr("the model is empty"));
  EXPECT_THAT(message_of([&] { Session session(none); }), HasSubstr("the model is empty"));
}

TEST(Session, refuses_an_index_that_is_out_of_range_where_only_a_sum_over_the_scatter_is_read) {
  TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 18]>
    m (int64[4, 1] label, float[4, 1] x) => (float[4] y) <int64[1] axis = {1}> {
      zero = Constant <value_float = 0.0> ()
      size = Constant <value_ints = [4, 10]> ()
      filled = Expand (zero, size)
      scattered = ScatterElements <axis = 1> (filled, label, x)
      y = ReduceSum <keepdims = 0> (scattered, axis)
    })"));
  const auto labels = [](int64_t last) {
    return Tensor::of(DType::int64, {4, 1}, std::vector<int64_t>{0, 9, -10, last});
  };
  for (const char* mesh : {"", "tp=2"}) {
    Session session(compile(model, *mesh ? Mesh::parse(mesh) : Mesh()));
    const Tensor y = session.run({{"label", labels(5)}, {"x", test::ramp({4, 1})}}).at("y");
    EXPECT_TRUE(std::equal(y.as<float>().begin(), y.as<float>().end(), test::ramp({4}).as<float>().begin()));
    for (int64_t wrong : {10, -11})
      EXPECT_THROW(session.run({{"label", labels(wrong)}, {"x", test::ramp({4, 1})}}), Error) << mesh << wrong;
  }
}

TEST(Session, tells_the_peak_of_each_rank_as_the_plan_does) {
  TemporaryFolder folder;
  Program program = compile(Model::load(write_model(folder, kPair)), Mesh::parse("tp=2"));
  auto peaks = Session(program).peak_bytes({{"x", row(1)}});
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0], program.peak_bytes(0, {{"batch", 3}}));
  EXPECT_EQ(peaks[1], program.peak_bytes(1, {{"batch", 3}}));
  EXPECT_GE(peaks[0], 2 * 8 * 16 * 4);  // at least half of both weights
}

TEST(Session, keeps_intermediate_tensors_in_running_order) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, kPair));
  SessionOptions options;
  options.keep_all = true;
  Session one(compile(model, Mesh()), options), two(compile(model, Mesh::parse("tp=2")), options);
  one.run({{"x", row(1)}});
  two.run({{"x", row(1)}});
  std::vector<std::string> names;
  for (const Session::Kept& kept : two.kept()) names.push_back(kept.name);
  EXPECT_THAT(names, testing::ElementsAre("hidden", "active", "y"));
  EXPECT_EQ(first_diverging(one, two), std::nullopt);
  two.run({{"x", row(2)}});
  auto diverging = first_diverging(one, two);
  ASSERT_TRUE(diverging.has_value());
  EXPECT_EQ(diverging->name, "hidden");
}

TEST(Program, counts_its_communication) {
  TemporaryFolder folder;
  Plan plan;
  plan.shapes = {{"batch", 4}};
  Program program = compile(Model::load(write_model(folder, kPair)), Mesh::parse("tp=2"), plan);
  const ProgramSummary& summary = program.summary();
  ASSERT_EQ(summary.collectives.size(), 1u);
  EXPECT_EQ(summary.collectives[0].kind, "all_reduce");
  EXPECT_THAT(summary.collectives[0].axes, testing::ElementsAre("tp"));
  EXPECT_EQ(summary.collectives[0].count, 1);
  EXPECT_EQ(summary.collectives[0].bytes, 4 * 8 * 4);  // twice half of [4, 8] float32
  ASSERT_EQ(summary.reshards.size(), 1u);
  EXPECT_EQ(summary.reshards[0].tensor, "y");
  EXPECT_EQ(summary.reshards[0].bytes, 4 * 8 * 4);
  EXPECT_THAT(summary.notes, testing::ElementsAre("preset megatron:tp (implied by the mesh)"));
}

TEST(Program, does_not_communicate_under_data_parallelism) {
  TemporaryFolder folder;
  EXPECT_TRUE(compile(Model::load(write_model(folder, kPair)), Mesh::parse("dp=2")).summary().collectives.empty());
}

TEST(Program, plans_for_a_mesh_that_no_process_could_run) {
  TemporaryFolder folder;
  Program program = compile(Model::load(write_model(folder, kPair)), Mesh::parse("tp=4,dp=4096"));
  EXPECT_GE(program.peak_bytes(0, {{"batch", 8192}}), 2 * 8 * 8 * 4);
  EXPECT_THROW(program.peak_bytes(4 * 4096, {}), Error);
}

TEST(Program, explains_who_split_a_tensor) {
  TemporaryFolder folder;
  Plan plan;
  plan.annotations = {{"down=[tp,-]"}};
  CompileOptions options;
  options.keep = {"hidden"};
  Program program = compile(Model::load(write_model(folder, kPair)), Mesh::parse("tp=2"), plan, options);
  Explanation down = program.explain("down");
  ASSERT_FALSE(down.places.empty());
  EXPECT_EQ(down.places[0].where, "stored");
  ASSERT_EQ(down.places[0].axes.size(), 1u);
  EXPECT_EQ(down.places[0].axes[0].axis, "tp");
  EXPECT_EQ(down.places[0].axes[0].by, "annotation");
  EXPECT_EQ(down.places[0].axes[0].round, 0);
  Explanation hidden = program.explain("hidden");
  ASSERT_EQ(hidden.places.size(), 2u);
  ASSERT_EQ(hidden.places[0].axes.size(), 1u);
  EXPECT_EQ(hidden.places[0].axes[0].dim, 1);
  EXPECT_GE(hidden.places[0].axes[0].round, 1);
  Explanation y = program.explain("y");
  ASSERT_EQ(y.reshards.size(), 1u);
  EXPECT_THAT(y.places[0].layout, HasSubstr("partial(sum:tp)"));
  EXPECT_THROW(program.explain("nothing"), Error);
}

TEST(Inspect, counts_parameters_flops_and_operators) {
  TemporaryFolder folder;
  Inspection found = inspect(Model::load(write_model(folder, kPair)), {{"batch", 4}});
  EXPECT_EQ(found.parameters, 2 * 8 * 32);
  EXPECT_EQ(found.parameter_bytes, 4 * 2 * 8 * 32);
  EXPECT_GE(found.flops, 2 * 2 * 4 * 8 * 32);
  EXPECT_TRUE(found.uncovered.empty());
  ASSERT_EQ(found.read.size(), 2u);
  EXPECT_EQ(found.read[0].op, "MatMul");
  EXPECT_EQ(found.read[0].count, 2);
}

TEST(Inspect, counts_of_a_table_the_rows_that_a_step_reads) {
  TemporaryFolder folder;
  const std::string text = R"(
    g (int64[batch] ids) => (float16[batch, 8] y) <float16[1000, 8] table, float16[8, 8] w> {
      x = Gather (table, ids)
      y = MatMul (x, w)
    })";
  export_model(parse_text(text), folder / "model.onnx");
  const Inspection few = inspect(Model::load(folder / "model.onnx"), {{"batch", 4}});
  EXPECT_EQ(few.parameter_bytes, 2 * (1000 * 8 + 8 * 8));
  EXPECT_EQ(few.parameter_bytes_read, 2 * (4 * 8 + 8 * 8));
  EXPECT_EQ(few.compute, DType::float16);
  const Inspection many = inspect(Model::load(folder / "model.onnx"), {{"batch", 5000}});
  EXPECT_EQ(many.parameter_bytes_read, many.parameter_bytes);
}

TEST(Inspect, counts_no_more_flops_than_a_number_holds) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, R"(
    g (float[n, n] a) => (float[n, n] y) {
      b = MatMul (a, a)
      c = MatMul (b, b)
      d = MatMul (c, c)
      e = MatMul (d, d)
      f = MatMul (e, e)
      y = MatMul (f, f)
    })"));
  EXPECT_EQ(inspect(model, {{"n", 1 << 20}}).flops, std::numeric_limits<int64_t>::max()) << "6·2⁶¹";
}

TEST(Inspect, names_operators_that_are_not_covered) {
  TemporaryFolder folder;
  Inspection found = inspect(Model::load(write_model(folder, R"(
    g (float[4] x) => (float[4] y) { a = Relu (x)  y = com.example.Frobnicate (a) })")));
  EXPECT_THAT(found.uncovered, testing::ElementsAre("com.example.Frobnicate"));
  EXPECT_THAT(found.rewrite_error, HasSubstr("Frobnicate"));
}

TEST(RandomInputs, stay_within_the_tables_that_they_index) {
  TemporaryFolder folder;
  Model model = Model::load(write_model(folder, R"(
    g (int64[batch, sequence] ids, int64[batch, sequence] attention_mask, bool[4] flags, int64[batch, sequence] position_ids)
      => (float[batch, sequence, 4] y, float[batch, sequence] m, float[4] f, float[batch, sequence, 4] p)
      <float[5, 4] table, float[3, 4] places> {
      axes = Constant <value_ints = [2]> ()
      wide = Unsqueeze (ids, axes)
      flat = Squeeze (wide, axes)
      y = Gather (table, flat)
      m = Cast <to = 1> (attention_mask)
      f = Cast <to = 1> (flags)
      p = Gather (places, position_ids)
    })"));
  Tensors inputs = random_inputs(model, {{"batch", 50}, {"sequence", 20}}, 7);
  std::vector<int64_t> ids = inputs.at("ids").to_int64();
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_EQ(*std::max_element(ids.begin(), ids.end()), 4);
  EXPECT_THAT(inputs.at("attention_mask").to_int64(), testing::Each(1));
  std::vector<int64_t> positions = inputs.at("position_ids").to_int64();
  EXPECT_EQ(positions[0], 0);
  EXPECT_EQ(positions[1], 1);
  EXPECT_EQ(*std::max_element(positions.begin(), positions.end()), 2);
  Tensors again = random_inputs(model, {{"batch", 50}, {"sequence", 20}}, 7);
  EXPECT_EQ(again.at("ids").to_int64(), ids);
  EXPECT_NE(random_inputs(model, {{"batch", 50}, {"sequence", 20}}, 8).at("ids").to_int64(), ids);
}

}  // namespace
}  // namespace tessera
