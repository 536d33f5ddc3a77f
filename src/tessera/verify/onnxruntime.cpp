#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compare.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/import.h"

// ONNX Runtime runs in the user's Python, in a process of its own; nothing here is linked to either. Arrays travel as
// .npz files in a folder that lives as long as the call.
namespace tessera {
inline namespace v1 {
namespace {

namespace fs = std::filesystem;

/// Arguments: the folder, the model, the number of threads (0: its default), and the level of its optimizer. Besides
/// inputs.npz, the folder holds names.txt (tensors to fetch) and added.txt (those of them that are not outputs of the
/// model); a zero byte ends each name. The script writes outputs.npz, or problem.txt: a word that says what failed, a
/// newline, and the reason.
constexpr const char* kScript = R"PYTHON(
import sys

sys.path[:] = [entry for entry in sys.path if entry]  # nothing comes from the working directory
import ctypes, os, zipfile

folder, model, threads, level = sys.argv[1:5]
ctypes.CDLL(None).prctl(1, 9)  # ends with the process that started it


def at(name):
    return os.path.join(folder, name)


def refuse(kind, error):
    with open(at("problem.txt"), "w", errors="replace") as file:
        file.write(kind + "\n" + str(error))
    sys.exit(1)


def lines(name):
    with open(at(name), "rb") as file:
        return [entry.decode("utf-8", "surrogateescape") for entry in file.read().split(b"\0")[:-1]]


def field(number, data):  # of a protobuf message
    def varint(value):
        digits = []
        while value > 127:
            digits.append(value & 127 | 128)
            value >>= 7
        return bytes(digits + [value])

    return varint(number << 3 | 2) + varint(len(data)) + data


try:
    import onnxruntime
    import numpy
except Exception as error:
    refuse("import", error)

try:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = int(threads)
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    # On CPUs where sums of products of uint8 by int8 saturate, it makes them exact.
    options.add_session_config_entry("session.x64quantprecision", "1")
    source, added = model, lines("added.txt")
    if added:  # messages that follow one another are one: so the graph gets further outputs, known by name only
        outputs = b"".join(field(12, field(1, name.encode("utf-8", "surrogateescape"))) for name in added)
        with open(model, "rb") as file:
            source = file.read() + field(7, outputs)
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", os.path.dirname(os.path.abspath(model)))
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    given = numpy.load(at("inputs.npz"))
    for port in session.get_inputs():
        if port.type == "tensor(bfloat16)":
            raise TypeError(f"input '{port.name}' is bfloat16, which its Python interface does not take")
    names = lines("names.txt")
    arrays = session.run(names, {port.name: given[port.name] for port in session.get_inputs()})
    with zipfile.ZipFile(at("outputs.npz"), "w", allowZip64=True) as archive:
        for name, array in zip(names, arrays):
            with archive.open(name + ".npy", "w", force_zip64=True) as file:
                numpy.lib.format.write_array(file, numpy.ascontiguousarray(array).reshape(numpy.shape(array)),
                                             allow_pickle=False)
except Exception as error:
    refuse("run", error)
)PYTHON";

/// TESSERA_PYTHON, else the active virtual environment's, else the first python3 in PATH.
std::string python() {
  if (const char* named = std::getenv("TESSERA_PYTHON"); named && *named) return named;
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment && *environment)
    return (fs::path(environment) / "bin/python3").string();
  return "python3";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string zero_ended(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + '\0';
  return text;
}

/// The status of a process, as from waitpid. Its output goes to the file `said` of the folder.
int status_of(std::vector<std::string> words, const fs::path& folder) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string said = (folder / "said.txt").string();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = -1;
  const int error = posix_spawnp(&process, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    fail("onnxruntime", "'{}' cannot be started ({}); name a Python that has onnxruntime in TESSERA_PYTHON", words[0],
         std::strerror(error));
  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) fail_running("onnxruntime", "cannot wait for '{}': {}", words[0], std::strerror(errno));
  return status;
}

/// Throws the problem that the script reports, or that Python has with running it.
void require_success(int status, const std::string& python, const fs::path& folder, const Model& model) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && fs::exists(folder / "outputs.npz")) return;
  const std::string problem = text_of(folder / "problem.txt"),
                    why = problem.substr(std::min(problem.size(), problem.find('\n') + 1));
  if (problem.starts_with("import\n"))
    fail("onnxruntime",
         "'{}' has no onnxruntime ({}); install it there ({} -m pip install onnxruntime), or name a Python that has it "
         "in TESSERA_PYTHON",
         python, why, python);
  if (problem.starts_with("run\n"))
    fail("onnxruntime", "it does not run '{}': {}; compare with one device, or with given outputs",
         model.path().string(), why);
  const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  std::string said = text_of(folder / "said.txt");
  while (said.ends_with('\n')) said.pop_back();
  const size_t last = said.rfind('\n');
  fail_running("onnxruntime", "'{}' {} without an answer{}{}", python, how, said.empty() ? "" : ": ",
               last == std::string::npos ? said : said.substr(last + 1));
}

bool any_node(const Graph& graph, const std::function<bool(const Node&)>& holds) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) {
    const std::vector<Graph*> regions = node->regions();
    return holds(*node) ||
           std::any_of(regions.begin(), regions.end(), [&](const Graph* region) { return any_node(*region, holds); });
  });
}

/// The optimizer level at which ONNX Runtime computes what the file says. Higher levels fuse DequantizeLinear and
/// QuantizeLinear with the operators between them, which rounds differently; but integer products need the highest one,
/// which makes their sums exact.
std::string level_for(const Graph& graph) {
  const bool quantized = any_node(graph, [](const Node& node) { return node.op_type == "DequantizeLinear"; });
  const bool integers = any_node(graph, [](const Node& node) {
    return node.op_type.ends_with("Integer") || node.op_type.starts_with("QLinear") || node.op_type == "QGemm" ||
           node.op_type.starts_with("DynamicQuantize") || node.op_type == "QAttention";
  });
  return quantized && !integers ? "ORT_ENABLE_BASIC" : "ORT_ENABLE_ALL";
}

bool is_output(const Model& model, const std::string& name) {
  return model.impl().model.graph->is_output(model.impl().model.graph->find(name));
}

/// A folder that others can neither guess nor read, removed with this object.
class PrivateFolder {
 public:
  PrivateFolder() : path_((fs::temp_directory_path() / "tessera-onnxruntime-XXXXXX").string()) {
    if (!mkdtemp(path_.data()))
      fail("onnxruntime", "cannot make a folder below {}: {}; let TMPDIR name one that can be written",
           fs::temp_directory_path().string(), std::strerror(errno));
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path path() const { return path_; }

 private:
  std::string path_;
};

template <typename T>
bool has_row_of_infinities(const Tensor& tensor) {
  const auto elements = tensor.as<T>();
  const auto length = static_cast<size_t>(tensor.dims.back());
  for (size_t row = 0; length > 0 && row + length <= elements.size(); row += length)
    if (std::all_of(elements.begin() + row, elements.begin() + row + length,
                    [](const T& element) { return std::isinf(static_cast<float>(element)) && element < T(0.0F); }))
      return true;
  return false;
}

bool has_row_of_infinities_in(const Tensor& tensor) {
  if (tensor.dims.empty()) return false;
  if (tensor.dtype == DType::float32) return has_row_of_infinities<float>(tensor);
  return tensor.dtype == DType::float64 && has_row_of_infinities<double>(tensor);
}

}  // namespace

std::optional<std::string> row_without_keys(const Model& model, const Tensors& inputs) {
  std::map<std::string, std::string> readers;  // of tensors that they normalize along the last dimension
  for (const auto& node : model.impl().model.graph->nodes()) {
    const Value* scores = node->input(0);
    if (node->op_type != "Softmax" || !scores || scores->kind != ValueKind::result) continue;
    const int64_t axis = node->get_int("axis", -1);
    if (axis == -1 || (scores->has_shape() && axis + 1 == static_cast<int64_t>(scores->rank())))
      readers.emplace(scores->name, node->label());
  }
  std::vector<std::string> names;
  for (const auto& [name, reader] : readers) names.push_back(name);
  if (names.empty()) return std::nullopt;
  try {
    const Tensors scores = run_onnxruntime(model, inputs, names);
    for (const auto& [name, reader] : readers)
      if (has_row_of_infinities_in(scores.at(name))) return reader;
  } catch (const Error&) {  // a tensor that is not an output may be unavailable
  }
  return std::nullopt;
}

Tensors run_onnxruntime(const Model& model, const Tensors& inputs, const std::vector<std::string>& names) {
  const PrivateFolder around;
  // Never committed, so it disappears after the call, or when the process is interrupted.
  const AtomicFolder exchange(around.path() / "exchange", [](const fs::path&) { return std::optional<std::string>(); });
  const fs::path& folder = exchange.temporary();
  std::vector<std::string> added;
  for (const std::string& name : names)
    if (!is_output(model, name)) added.push_back(name);
  write_npz(folder / "inputs.npz", {inputs.begin(), inputs.end()});
  write_file(folder / "names.txt", zero_ended(names));
  write_file(folder / "added.txt", zero_ended(added));
  const std::string interpreter = python();
  fs::path file = model.path();
  if (is_text_model(file)) {  // ONNX Runtime does not read text models
    file = folder / "model.onnx";
    export_model(model.impl().model, file);
  }
  const Graph& graph = *model.impl().model.graph;
  // Each thread of this operator quantizes some sequences, so its result depends on the number of threads.
  const char* threads =
      any_node(graph, [](const Node& node) { return node.op_type == "DynamicQuantizeLSTM"; }) ? "1" : "0";
  const int status =
      status_of({interpreter, "-c", kScript, folder.string(), file.string(), threads, level_for(graph)}, folder);
  require_success(status, interpreter, folder, model);
  return read_npz(folder / "outputs.npz");
}

std::optional<Difference> first_diverging_from_onnxruntime(const Model& model, const Tensors& inputs, Session& actual,
                                                           const Tolerance& tolerance) {
  const std::vector<Session::Kept> kept = actual.kept();
  std::set<std::string> names;  // a tensor is kept in each of its layouts
  for (const Session::Kept& tensor : kept) {
    const Value* value = model.impl().model.graph->find(tensor.name);
    if (value && value->kind == ValueKind::result) names.insert(tensor.name);
  }
  const Tensors expected = run_onnxruntime(model, inputs, {names.begin(), names.end()});
  return first_diverging(expected, kept, tolerance);
}

}  // namespace v1
}  // namespace tessera
