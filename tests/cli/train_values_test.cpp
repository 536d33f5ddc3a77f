// Values that commands are given for training: numbers of options, and arrays.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/command_line.h"
#include "cli/started.h"

namespace tessera {
namespace {

class TrainValues : public CommandLine {
 protected:
  const std::string gpt_ = std::string(TESSERA_TEST_DATA) + "/models/training/gpt/model.onnx";

  std::string at(const char* name) { return (folder_ / name).string(); }

  // Two steps of [2, 6] tokens for a table of 11 rows, and labels for 11 classes.
  std::string embedding() {
    return write_model(folder_, R"(
<ir_version: 10, opset_import: ["" : 17]>
g (int64[b, s] ids) => (float[b, s, 11] y) <float[11, 8] table, float[8, 11] head, float[0, 4] none> {
  x = Gather (table, ids)
  y = MatMul (x, head)
})")
        .string();
  }

  template <typename T = int64_t>
  std::string data(const char* name, std::vector<T> ids, std::vector<T> labels, DType type = DType::int64) {
    write_npz(folder_ / name,
              {{"ids", Tensor::of(type, {2, 2, 6}, ids)}, {"labels", Tensor::of(type, {2, 2, 6}, labels)}});
    return at(name);
  }

  static std::string joined(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += word + " ";
    return line;
  }

  template <typename T = int64_t>
  static std::vector<T> counted() {
    std::vector<T> elements(24);
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<T>(i % 11);
    return elements;
  }
};

TEST_F(TrainValues, labels_and_tokens_out_of_range_are_named_with_their_place) {
  const std::string model = embedding();
  for (const char* mesh : {"", " --mesh tp=2", " --mesh dp=2", " --mesh dp=2 --spawn 2"})
    for (int64_t wrong : {int64_t{-1}, int64_t{11}, int64_t{-101}, int64_t{1} << 40, INT64_MIN, INT64_MAX})
      for (bool is_label : {true, false}) {
        std::vector<int64_t> ids = counted(), labels = counted();
        (is_label ? labels : ids)[12 + 6 + 4] = wrong;  // step 1, row 1, column 4
        const Ran ran =
            tessera("train " + model + " --quiet --optimizer sgd --data " + data("d.npz", ids, labels) + mesh);
        EXPECT_EQ(ran.code, 2) << ran.err;
        EXPECT_THAT(ran.err, AllOf(HasSubstr(is_label ? "'labels' of step 1" : "'ids' of step 1"),
                                   HasSubstr("holds " + std::to_string(wrong) + " at [1, 4]"), HasSubstr("0 to 10")));
      }
  std::vector<int64_t> ignored = counted();
  ignored[3] = -100;
  EXPECT_EQ(tessera("train " + model + " --quiet --data " + data("d.npz", counted(), ignored)).code, 0);
  EXPECT_EQ(tessera("train " + model + " --quiet --loss cross-entropy:ignore_index=-1 --data " +
                    data("e.npz", counted(), ignored))
                .code,
            2);
}

// The checkpoint before it is still being written then.
TEST_F(TrainValues, out_of_range_leave_the_checkpoint_before_them) {
  std::vector<int64_t> labels = counted();
  labels[12] = 11;  // in step 1
  const std::string file = data("d.npz", counted(), labels);
  for (const char* mesh : {"", " --mesh dp=2", " --mesh dp=2 --spawn 2"}) {
    SCOPED_TRACE(mesh);
    std::filesystem::remove_all(at("run"));
    const std::string words =
        "train " + embedding() + " --quiet --save-every 1 --checkpoints run --data " + file + mesh;
    EXPECT_THAT(mistake(words), HasSubstr("'labels' of step 1"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "run/step-000001"));
    const Ran again = tessera(words + " --steps 1 --resume");
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.err, "");
  }
}

// Between the table and its lookup lies a cast or a transposition then.
TEST_F(TrainValues, tokens_out_of_range_are_named_whatever_the_table_is_made_from) {
  std::string text = R"(
<ir_version: 10, opset_import: ["" : 17]>
g (int64[b, s] ids) => (float[b, s, 11] y) <float[11, 8] table, float[8, 11] head> {
  x = Gather (table, ids)
  y = MatMul (x, head)
})";
  std::vector<int64_t> ids = counted();
  ids[12 + 6 + 4] = -5;
  const std::string file = data("d.npz", ids, counted());
  const auto expect_named = [&](const std::string& words) {
    EXPECT_THAT(mistake("train " + write_model(folder_, text).string() + " --quiet --data " + file + words),
                AllOf(HasSubstr("'ids' of step 1"), HasSubstr("holds -5 at [1, 4]"), HasSubstr("0 to 10")))
        << words;
  };
  for (const char* words : {" --dtype bfloat16", " --dtype float16", " --tie 'table=head^T'"}) expect_named(words);
  for (size_t at = text.find("float["); at != std::string::npos; at = text.find("float[", at + 8))
    text.replace(at, 5, "float16");
  expect_named("");
}

TEST_F(TrainValues, data_of_an_evaluation_are_held_to_the_same_ranges) {
  std::vector<int64_t> wrong = counted();
  wrong[1] = -5;
  const std::string good = data("good.npz", counted(), counted()), bad = data("bad.npz", wrong, counted());
  EXPECT_THAT(mistake("train " + embedding() + " --quiet --data " + good + " --eval-data " + bad),
              AllOf(HasSubstr("bad.npz"), HasSubstr("'ids' of step 0"), HasSubstr("-5 at [0, 1]")));
}

TEST_F(TrainValues, of_other_types_are_converted_where_nothing_is_lost) {
  const std::string model = embedding();
  const auto losses = [&](const std::string& file) { return parsed("train " + model + " --data " + file)["losses"]; };
  const json expected = losses(data("d.npz", counted(), counted()));
  EXPECT_EQ(losses(data("d.npz", counted<int32_t>(), counted<int32_t>(), DType::int32)), expected);
  EXPECT_EQ(losses(data("d.npz", counted<uint8_t>(), counted<uint8_t>(), DType::uint8)), expected);
  EXPECT_THAT(mistake("train " + model + " --quiet --data " +
                      data("d.npz", counted<double>(), counted<double>(), DType::float64)),
              AllOf(HasSubstr("float64"), HasSubstr("int64"), HasSubstr("astype")));
}

TEST_F(TrainValues, inputs_of_other_types_are_converted_where_nothing_is_lost) {
  std::vector<double> whole(8, 3);
  const auto run = [&](Tensor x) { return tessera("run " + model_ + " --inputs " + npz("in.npz", "x", std::move(x))); };
  EXPECT_EQ(run(Tensor::of(DType::float64, {1, 8}, whole)).code, 0);
  whole[3] = 0.1;
  const Ran refused = run(Tensor::of(DType::float64, {1, 8}, whole));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("'x'"), HasSubstr("float64"), HasSubstr("float32"), HasSubstr("astype")));
}

TEST_F(TrainValues, in_a_damaged_archive_are_refused) {
  const std::string model = embedding(), file = data("d.npz", counted(), counted());
  std::string bytes = contents(file);
  bytes[bytes.find("NUMPY") + 200] ^= 2;
  testing_io::put(file, bytes);
  const std::string words = "train " + model + " --quiet --data ";
  for (const char* mesh : {"", " --mesh dp=2 --spawn 2"})
    EXPECT_THAT(mistake(words + file + mesh), HasSubstr("d.npz: 'ids'"));
  EXPECT_EQ(tessera(words + file + " --dry-run").code, 0) << "it reads no values";
  const std::string good = data("good.npz", counted(), counted());
  EXPECT_THAT(mistake(words + good + " --eval-data " + file), HasSubstr("d.npz: 'ids'"));
  const std::string nothing = " --emit " + at("step.onnx") + " --metrics " + at("metrics");
  EXPECT_THAT(mistake(words + file + nothing + " --mesh tp=2 --annotate nobody=[tp]"), HasSubstr("'nobody'"))
      << "what can be told without reading the data is told first";
  mistake(words + file + nothing);
  EXPECT_FALSE(std::filesystem::exists(at("step.onnx")));
  EXPECT_FALSE(std::filesystem::exists(at("metrics")) && !contents(at("metrics")).empty());
}

// An archive of zeros, gigabytes of them, whose arrays take no room on the disk.
class LargeArchive {
 public:
  explicit LargeArchive(const std::string& path) : file_(path, std::ios::binary) {}

  void add(const std::string& name, const std::string& type, const std::string& dims, uint32_t bytes) {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + dims + ", }";
    header.append(117 - header.size(), ' ').append("\n");
    header = std::string("\x93NUMPY\x01\x00", 8) + little(static_cast<uint32_t>(header.size()), 2) + header;
    const std::string entry = name + ".npy";
    const auto size = static_cast<uint32_t>(header.size()) + bytes;
    const std::string facts = std::string(8, '\0') + little(0, 4) + little(size, 4) + little(size, 4) +
                              little(static_cast<uint32_t>(entry.size()), 2) + little(0, 2);
    directory_ += std::string("PK\x01\x02", 4) + little(20, 2) + little(20, 2) + facts + std::string(10, '\0') +
                  little(static_cast<uint32_t>(file_.tellp()), 4) + entry;
    file_ << std::string("PK\x03\x04", 4) << little(20, 2) << facts << entry << header;
    file_.seekp(bytes, std::ios::cur);
    ++entries_;
  }

  void end() {
    const auto at = static_cast<uint32_t>(file_.tellp());
    file_ << directory_ << std::string("PK\x05\x06\0\0\0\0", 8) << little(entries_, 2) << little(entries_, 2)
          << little(static_cast<uint32_t>(directory_.size()), 4) << little(at, 4) << little(0, 2);
    file_.close();
  }

 private:
  static std::string little(uint32_t number, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> 8 * i);
    return text;
  }

  std::ofstream file_;
  std::string directory_;
  uint32_t entries_ = 0;
};

TEST_F(TrainValues, are_checked_no_longer_when_the_run_is_told_to_stop) {
  LargeArchive archive(at("large.npz"));
  constexpr uint32_t kSteps = 20'000'000, kLabels = 6;
  for (const char* name : {"ids", "labels"})
    archive.add(name, "<i8", "(" + std::to_string(kSteps) + ", 2, 6)", kSteps * 2 * kLabels * 8);
  archive.end();
  for (const char* ranks : {"1", "2"}) {
    std::vector<std::string> words = {TESSERA_BINARY, "train", embedding(), "--data", "large.npz", "--metrics", "m"};
    if (*ranks == '2') words.insert(words.end(), {"--mesh", "dp=2", "--spawn", "2"});
    std::filesystem::remove(at("err"));
    const pid_t child = test::start(folder_, {"/bin/sh", "-c", "exec " + joined(words) + " >out 2>err"});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (contents(at("err")).find("checking data") == std::string::npos &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(kill(child, SIGTERM), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 4) << status << contents(at("err"));
    EXPECT_THAT(contents(at("err")), HasSubstr("stopped by a signal before the first step"));
    EXPECT_EQ(contents(at("m")), "");
  }
}

TEST_F(TrainValues, parameters_without_elements_are_saved) {
  const std::string model = write_model(folder_, R"(
<ir_version: 10, opset_import: ["" : 17]>
g (float[b, 4] x) => (float[b, 4] y) <float[4, 4] w, float[4, 0] none, float[0] bias, float[1] scale = {2.0}> {
  e = MatMul (x, none)
  f = Add (e, bias)
  h = MatMul (x, w)
  c = Concat <axis = 1> (h, f)
  y = Mul (c, scale)
})")
                                .string();
  write_npz(folder_ / "d.npz", {{"x", test::ramp({2, 2, 4})}, {"labels", test::ramp({2, 2, 4}, 3)}});
  for (const char* freeze : {"", " --freeze scale"})
    for (const char* mesh : {"", " --mesh tp=2", " --mesh fsdp=2"}) {
      const Ran ran = tessera("train " + model + " --quiet --loss mse --data " + at("d.npz") + " --save-final " +
                              at("after.npz") + mesh + freeze);
      ASSERT_EQ(ran.code, 0) << ran.err;
      const auto after = read_npz(at("after.npz"));
      EXPECT_EQ(after.size(), 4u);
      EXPECT_EQ(after.at("none").dims, (Dims{4, 0}));
      EXPECT_EQ(after.at("bias").dims, (Dims{0}));
      EXPECT_EQ(after.at("scale").dims, (Dims{1}));
    }
}

TEST_F(TrainValues, numbers_of_options_have_one_rule) {
  const std::string train = "train " + gpt_ + " --dry-run --shapes batch=2,sequence=4 ";
  for (const char* option : {"--batch", "--sequence", "--steps", "--clip", "--average", "--held-out", "--micro-batches",
                             "--eval-every", "--save-every", "--keep", "--lr", "--loss-scale"})
    for (const char* number : {"nan", "inf", "-1", "1e400", "1e39", "x"}) mistake(train + option + " " + number);
  for (const char* option : {"--batch", "--sequence", "--steps", "--micro-batches", "--eval-every", "--save-every"})
    for (const char* number : {"0", "1.5", "99999999999999999999"}) mistake(train + option + " " + number);
  for (const char* words :
       {"--average 1", "--held-out 0.95", "--lr-factor '*=nan'", "--lr-factor '*=inf'", "--lr-factor '*=-1'",
        "--loss-scale 0", "--seed -1", "--seed x", "--seed 1.5", "--seed 18446744073709551616"})
    mistake(train + words);
  EXPECT_EQ(tessera(train + "--seed 18446744073709551615").code, 0);
  EXPECT_EQ(tessera(train + "--recompute auto:inf").code, 2);
  for (const char* words : {"verify --rtol nan", "verify --atol inf", "generate --ids 1 --top-p nan",
                            "generate --ids 1 --top-p 0", "generate --ids 1 --temperature nan", "run --timeout nan",
                            "run --timeout inf", "run --repeat 0", "run --repeat nan", "run --steps -1"})
    mistake(std::string(words) + " " + gpt_);
}

TEST_F(TrainValues, numbers_of_a_configuration_have_the_same_rule) {
  for (const char* line : {R"({"batch": 0})", R"({"clip": "nan"})", R"({"average": 1})", R"({"steps": 2.5})"}) {
    testing_io::put(folder_ / "run.json", line);
    EXPECT_THAT(mistake("train " + gpt_ + " --dry-run --config " + at("run.json")), HasSubstr("run.json")) << line;
  }
}

// Refused before anything of that size is made.
TEST_F(TrainValues, a_batch_that_nothing_holds_is_refused) {
  testing_io::put(folder_ / "text.txt", std::string(1000, 'a'));
  const std::string train = "ulimit -v 4000000; " + std::string(TESSERA_BINARY) + " train " + gpt_ +
                            " --quiet --steps 1 --data " + at("text.txt") + " --sequence 16 --batch ";
  for (const char* batch : {"100000000", "2000000000"}) {
    const Ran ran = test::run_command("bash -c '" + train + batch + "'", folder_);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_THAT(ran.err, testing::AnyOf(HasSubstr("GiB"), HasSubstr("TiB"), HasSubstr("PiB"))) << ran.err;
  }
}

// A name that has commas is one name; else commas separate names.
TEST_F(TrainValues, tensors_with_commas_can_be_named) {
  OnnxModel made = parse_text(kPair);
  made.graph->rename(made.graph->find("hidden"), "hid,den/0");
  const std::string model = at("commas.onnx");
  export_model(made, model);
  const std::string in = npz("in.npz", "x", test::ramp({2, 8})), out = at("out.npz");
  const auto fetched = [&](const std::string& words) {
    const Ran ran = tessera("run " + model + " --inputs " + in + " --outputs " + out + " " + words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : read_npz(out)) names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(fetched("--fetch hid,den/0"), (Names{"hid,den/0"}));
  EXPECT_EQ(fetched("--fetch active,y"), (Names{"active", "y"}));
  EXPECT_EQ(fetched("--fetch active --fetch hid,den/0 --fetch y"), (Names{"active", "hid,den/0", "y"}));
  EXPECT_EQ(parsed("verify " + model + " --mesh tp=2 --outputs hid,den/0 --outputs y --inputs " + in)["pass"], true);
  EXPECT_THAT(mistake("run " + model + " --fetch hid,den/1"), HasSubstr("'hid'"));
}

}  // namespace
}  // namespace tessera
