// Takes a model's bytes along the whole path: reads and inspects the model, compiles it for one rank and for two,
// proves it, runs it, and runs it again with one size a little larger, which must give the result of a session that
// knew no other sizes. Skips runs that would take much time or memory according to `inspect` and the program.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "fuzz/reader.h"
#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/check.h"
#include "tessera/inspect.h"
#include "tessera/tessera.h"

namespace tessera::fuzz {
namespace {

constexpr int64_t kMostFlops = 20'000'000;
constexpr int64_t kMostBytes = 64 << 20;

/// A file without a folder: any external data of a model lead out of it, and are refused.
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

struct Sized {
  SymbolSizes sizes;
  Tensors inputs;
};

/// The sizes with one of them larger by one; nullopt if the model has no sizes, or does not run at such sizes.
std::optional<Sized> grown(const Model& model, const SymbolSizes& sizes) {
  for (const std::string& symbol : model.symbols()) try {
      Sized larger{model.complete({{symbol, sizes.at(symbol) + 1}}), {}};
      compile(model.with_sizes(larger.sizes), Mesh(), {});
      larger.inputs = random_inputs(model, larger.sizes, 2, kMostBytes);
      return larger;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::user) throw;
    }
  return std::nullopt;
}

/// Nullopt where the inputs are refused.
std::optional<Tensors> outputs_of(Session& session, const Tensors& inputs) {
  try {
    return session.run(inputs);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
}

bool same_bits(const Tensors& a, const Tensors& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           const Tensor &one = entry.second, &other = b.at(entry.first);
           return one.dims == other.dims && one.bytes == other.bytes &&
                  (one.bytes == 0 || std::memcmp(one.data, other.data, one.bytes) == 0);
         });
}

void check_and_run(const Program& program, const Sized& first, const std::optional<Sized>& larger) {
  const CheckReport report = check_program(program);
  if (!report.good()) {
    const CheckFinding& finding = report.findings.front();
    std::fprintf(stderr, "what was compiled is not proved: %s: %s\n", finding.rule.c_str(), finding.message.c_str());
    std::abort();
  }
  if (program.peak_bytes(0, first.sizes) > kMostBytes) return;
  SessionOptions options;
  options.threads_per_rank = 1;
  options.timeout = std::chrono::seconds(10);
  Session session(program, options);
  session.run(first.inputs);
  if (!larger || program.peak_bytes(0, larger->sizes) > kMostBytes) return;
  const std::optional<Tensors> again = outputs_of(session, larger->inputs);
  Session fresh(program, options);
  const std::optional<Tensors> expected = outputs_of(fresh, larger->inputs);
  if (again.has_value() == expected.has_value() && (!again || same_bits(*again, *expected))) return;
  std::fprintf(stderr, "at larger sizes a session gives something else than one that had no others before\n");
  std::abort();
}

void go(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const Model model = Model::load(file.path());
  const SymbolSizes sizes = model.complete({});
  const Inspection seen = inspect(model, sizes);
  const bool small = seen.rewrite_error.empty() && seen.flops <= kMostFlops && seen.moved_bytes <= kMostBytes;
  if (!small) return;
  const Sized first{sizes, random_inputs(model, sizes, 1, kMostBytes)};
  Plan annotated;
  annotated.shapes = sizes;
  annotate(model.inputs(), annotated);
  for (const WeightInfo& weight : seen.weights) annotate({weight.tensor}, annotated);
  Plan usual;
  usual.shapes = sizes;
  // A model that does not run at these sizes is refused here, when they are numbers.
  compile(model.with_sizes(sizes), Mesh(), {});
  const std::optional<Sized> larger = grown(model, sizes);
  // Each by itself: one may be refused where another is allowed.
  for (const auto& [mesh, plan] : {std::pair("tp=1", &usual), {"tp=2", &usual}, {"tp=2", &annotated}})
    run([&, mesh = mesh, plan = plan] { check_and_run(compile(model, Mesh::parse(mesh), *plan), first, larger); });
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::run([&] { tessera::fuzz::go(data, size); });
  return 0;
}
