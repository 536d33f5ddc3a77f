// A model's bytes on the whole way: read, looked at, compiled for one rank and for two, proved, and run once. What
// would take much time or memory to run, as `inspect` and the program say, is not run.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz/reader.h"
#include "tessera/base/descriptor.h"
#include "tessera/check.h"
#include "tessera/inspect.h"
#include "tessera/tessera.h"

namespace tessera::fuzz {
namespace {

constexpr int64_t kMostFlops = 20'000'000;
constexpr int64_t kMostBytes = 64 << 20;

/// A file without a folder: whatever a model says of external data leads out of it, and is refused.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(memfd_create("model", MFD_CLOEXEC)) {
    for (size_t at = 0; at < size;) {
      const ssize_t written = ::write(file_.get(), data + at, size - at);
      if (written <= 0) std::abort();
      at += static_cast<size_t>(written);
    }
  }

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  Descriptor file_;
};

/// Splits a dimension of each tensor, another one for another name.
void annotate(const std::vector<TensorInfo>& tensors, Plan& plan) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.shape.empty() || tensor.name.find_first_of("*=") != std::string::npos) continue;
    const size_t split = std::hash<std::string>()(tensor.name) % tensor.shape.size();
    std::string text = tensor.name + "=[";
    for (size_t d = 0; d < tensor.shape.size(); ++d) text += std::string(d ? ", " : "") + (d == split ? "tp" : "-");
    plan.annotations.push_back({text + "]", "fuzz"});
  }
}

void check_and_run(const Program& program, const Tensors& inputs, const SymbolSizes& sizes) {
  const CheckReport report = check_program(program);
  if (!report.good()) {
    const CheckFinding& finding = report.findings.front();
    std::fprintf(stderr, "what was compiled is not proved: %s: %s\n", finding.rule.c_str(), finding.message.c_str());
    std::abort();
  }
  if (program.peak_bytes(0, sizes) > kMostBytes) return;
  SessionOptions options;
  options.threads_per_rank = 1;
  options.timeout = std::chrono::seconds(10);
  Session(program, options).run(inputs);
}

void go(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const Model model = Model::load(file.path());
  const SymbolSizes sizes = model.complete({});
  const Inspection seen = inspect(model, sizes);
  const bool small = seen.rewrite_error.empty() && seen.flops <= kMostFlops && seen.moved_bytes <= kMostBytes;
  if (!small) return;
  const Tensors inputs = random_inputs(model, sizes, 1, kMostBytes);
  Plan annotated;
  annotated.shapes = sizes;
  annotate(model.inputs(), annotated);
  for (const WeightInfo& weight : seen.weights) annotate({weight.tensor}, annotated);
  Plan usual;
  usual.shapes = sizes;
  // A model that does not run at these sizes is refused here, when they are numbers.
  compile(model.with_sizes(sizes), Mesh(), {});
  // Each by itself: one may be refused for what another allows.
  for (const auto& [mesh, plan] : {std::pair("tp=1", &usual), {"tp=2", &usual}, {"tp=2", &annotated}})
    run([&, mesh = mesh, plan = plan] { check_and_run(compile(model, Mesh::parse(mesh), *plan), inputs, sizes); });
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::run([&] { tessera::fuzz::go(data, size); });
  return 0;
}
