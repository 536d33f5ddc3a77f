// What processes hold against what they said that they need, with models of 300 million parameters and more.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/command_line.h"
#include "cli/started.h"
#include "sample.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"

namespace tessera {
namespace {

/// A process and its children.
std::vector<pid_t> family_of(pid_t process) {
  std::vector<pid_t> family = {process};
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", process));
  for (pid_t child = 0; children >> child;) family.push_back(child);
  return family;
}

/// Anonymous bytes of a process.
int64_t anonymous_of(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word;)
    if (int64_t kibibytes = 0; word == "RssAnon:" && status >> kibibytes) return kibibytes << 10;
  return 0;
}

/// Bytes of the memory that ranks share, where this process has it open.
int64_t shared_of(pid_t process) {
  std::error_code gone;
  const std::string open = fmt::format("/proc/{}/fd", process);
  for (std::filesystem::directory_iterator file(open, gone), end; !gone && file != end; file.increment(gone)) {
    const std::string target = std::filesystem::read_symlink(file->path(), gone).string();
    struct stat facts {};
    if (target.starts_with("/memfd:tessera") && stat(file->path().c_str(), &facts) == 0) return facts.st_blocks * 512;
  }
  return 0;
}

/// Bytes that one rank's process holds: the one that has most, and its part of what they share.
int64_t held_by(pid_t process) {
  const std::vector<pid_t> family = family_of(process);
  int64_t most = 0, shared = 0;
  for (pid_t each : family) {
    most = std::max(most, anonymous_of(each));
    shared = std::max(shared, shared_of(each));
  }
  return most + shared / std::max<int64_t>(1, static_cast<int64_t>(family.size()) - 1);
}

struct Case {
  std::string command, dtype, ranks;
};

/// All that processes may be, or a sample.
std::vector<Case> cases_of(const std::string& command, std::vector<std::pair<const char*, const char*>> sample) {
  std::vector<Case> cases;
  if (!test::tries_all()) {
    for (const auto& [dtype, ranks] : sample) cases.push_back({command, dtype, ranks});
    return cases;
  }
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (const char* ranks : {"", "--mesh tp=2", "--mesh dp=2", "--mesh tp=2 --spawn 2", "--mesh dp=2 --spawn 2"})
      cases.push_back({command, dtype, ranks});
  return cases;
}

class Memory : public CommandLine {
 protected:
  /// Writes a model whose weights are zeros in a file that takes no room on the disk.
  std::string sparse_model(const std::string& name, const std::string& text) {
    OnnxModel model = parse_text(text);
    ExportOptions options;
    uint64_t end = 0;
    for (const Value* state : model.graph->values_of(ValueKind::state)) {
      if (state->data.bytes < 4096) continue;
      options.stored[state->name] = {name + ".weights", end};
      end += (state->data.bytes + 4095) / 4096 * 4096;
    }
    const std::filesystem::path weights = folder_.path() / (name + ".weights");
    std::ofstream(weights).close();
    std::filesystem::resize_file(weights, end);
    export_model(model, folder_.path() / (name + ".onnx"), options);
    return (folder_.path() / (name + ".onnx")).string();
  }

  /// The most that one of the command's processes has held, and what the first said that one needs.
  std::pair<int64_t, int64_t> held_and_needed(const std::string& words) {
    const std::string out = (folder_ / "out.json").string();
    const pid_t shell = test::start(
        folder_, {"/bin/sh", "-c", "exec " + std::string(TESSERA_BINARY) + " " + words + " --json >" + out});
    int64_t most = 0;
    int status = 0;
    while (waitpid(shell, &status, WNOHANG) == 0) {
      most = std::max(most, held_by(shell));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(status, 0) << words;
    const json object = json::parse(contents(out), nullptr, false);
    EXPECT_TRUE(object.is_object()) << words;
    if (!object.is_object()) return {most, 0};
    return {most, object["process"]["peak_bytes"].get<int64_t>()};
  }

  /// `small` does the same with next to no weights.
  void expect_as_planned(const Case& of, const std::string& words, const std::string& small) {
    constexpr double kSlack = 0.03;
    const std::string options = fmt::format(" --dtype {} {} --threads 1", of.dtype, of.ranks);
    SCOPED_TRACE(words + options);
    const auto [around, little] = held_and_needed(small + options);
    const auto [held, needed] = held_and_needed(words + options);
    const auto growth = static_cast<double>(held - around), planned = static_cast<double>(needed - little);
    RecordProperty("growth_bytes", std::to_string(held - around));
    fmt::print("{:8} {} {:22} planned {:6.1f} MiB, held {:6.1f} ({:+.1f} %)\n", of.command, of.dtype, of.ranks,
               planned / (1 << 20), growth / (1 << 20), 100 * (growth / planned - 1));
    if (!test::kCountsMemory) return;
    EXPECT_NEAR(growth, planned, kSlack * planned);
  }
};

std::string chain(int width) {
  std::string states, nodes;
  for (int layer = 0; layer < 4; ++layer) {
    states += fmt::format("{}float[{}, {}] w{}", layer ? ", " : "", width, width, layer);
    nodes += fmt::format("x{} = MatMul (x{}, w{})\n", layer + 1, layer, layer);
  }
  return fmt::format("chain (float[batch, {0}] x0) => (float[batch, {0}] x4) <{1}> {{\n{2}}}", width, states, nodes);
}

std::string decoder(int vocabulary, int width) {
  return fmt::format(R"(
    g (int64[batch, sequence] input_ids) => (float[batch, sequence, {0}] logits)
      <float[{0}, {1}] table, float[{1}, {1}] wq, float[{1}, {1}] wk, float[{1}, {1}] wv, float[{1}, {1}] wo,
       float[{1}, {2}] up, float[{2}, {1}] down, float[{1}, {0}] head> {{
      x = Gather <axis = 0> (table, input_ids)
      q = MatMul (x, wq)
      k = MatMul (x, wk)
      v = MatMul (x, wv)
      a = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 4> (q, k, v)
      o = MatMul (a, wo)
      r = Add (x, o)
      h = MatMul (r, up)
      g = Relu (h)
      d = MatMul (g, down)
      z = Add (r, d)
      logits = MatMul (z, head)
    }})",
                     vocabulary, width, 4 * width);
}

TEST_F(Memory, of_runs_is_as_planned) {
  const std::string large = sparse_model("large", chain(8704)), small = sparse_model("small", chain(64));
  for (const Case& of : cases_of("run", {{"fp32", ""}, {"bf16", "--mesh dp=2"}, {"fp16", "--mesh tp=2"}}))
    expect_as_planned(of, "run " + large + " --shapes batch=64", "run " + small + " --shapes batch=64");
}

TEST_F(Memory, of_decoders_is_as_planned) {
  const std::string large = sparse_model("large", decoder(32000, 4096)),
                    small = sparse_model("small", decoder(512, 64));
  const std::string texts = " --ids 1,2,3,4 --ids 5,6,7,8 --max-new 3 --quiet";
  for (const Case& of :
       cases_of("generate", {{"bf16", ""}, {"fp32", "--mesh dp=2"}, {"bf16", "--mesh tp=2 --spawn 2"}}))
    expect_as_planned(of, "generate " + large + texts, "generate " + small + texts);
}

TEST_F(Memory, of_training_is_as_planned) {
  const auto prepared = [&](const std::string& name, int width) {
    const std::string data = (folder_.path() / (name + ".npz")).string();
    const Tensor batch = Tensor::zeros(DType::float32, {2, 4, width});
    write_npz(data, {{"x0", batch}, {"labels", batch}});
    return "train " + sparse_model(name, chain(width)) + " --data " + data +
           " --loss mse --optimizer sgd --steps 2 --quiet";
  };
  const std::string large = prepared("large", 8704), small = prepared("small", 64);
  for (const Case& of : cases_of("train", {{"bf16", "--mesh tp=2"}, {"fp32", "--mesh dp=2 --spawn 2"}}))
    expect_as_planned(of, large, small);
  const std::string frozen = " --freeze w0 --freeze w1 --freeze w2";
  for (const Case& of : cases_of("train", {{"fp32", "--mesh dp=2"}}))
    expect_as_planned(of, large + frozen, small + frozen);
}

}  // namespace
}  // namespace tessera
