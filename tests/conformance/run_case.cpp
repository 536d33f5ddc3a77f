#include "conformance/run_case.h"

#include "tessera/base/error.h"
#include "tessera/compare.h"
#include "tessera/compiler/compile.h"
#include "tessera/runtime/executor.h"

namespace tessera::conformance {
namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr int64_t kSmall = 64;  // elements of what shapes are computed from

bool is_small_integer(const Tensor& tensor) {
  return is_integer(tensor.dtype) && tensor.dims.size() <= 1 && tensor.count() <= kSmall;
}

bool is_small(const Tensor& tensor) {
  return tensor.dims.size() <= 1 && tensor.count() <= kSmall;
}

Tensors run(const NodeCase& node_case, const std::string& mesh, const std::string& annotation) {
  compiler::CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  if (!annotation.empty()) options.annotations.push_back(compiler::AnnotationRequest::parse(annotation, "annotation"));
  compiler::Compiled compiled = compiler::compile(node_case.model, options);
  runtime::ExecutorOptions executor_options;
  executor_options.threads_per_rank = 1;
  executor_options.world.timeout = std::chrono::seconds(20);
  return runtime::Executor(compiled.program, executor_options).run(node_case.inputs);
}

Outcome judge(const NodeCase& node_case, Verdict passed) {
  try {
    Tensors actual = run(node_case, "x=1", "");
    for (const auto& [name, expected] : node_case.outputs) {
      if (!actual.contains(name)) return {Verdict::wrong, fmt::format("'{}' is missing", name)};
      std::string problem = mismatch(name, expected, actual.at(name), node_case.tolerance);
      if (!problem.empty()) return {Verdict::wrong, problem};
    }
    return {passed, ""};
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::unsupported : Verdict::broken, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::broken, error.what()};
  }
}

// The case as it is, or with as few constants as make it run.
Outcome settle(NodeCase& node_case) {
  Outcome outcome = judge(node_case, Verdict::pass);
  for (auto is_constant : {is_small_integer, is_small}) {
    if (outcome.verdict != Verdict::unsupported) break;
    NodeCase changed = with_constants(node_case, is_constant);
    if (changed.inputs.size() == node_case.inputs.size()) continue;
    Outcome retried = judge(changed, Verdict::pass_with_constants);
    if (retried.verdict == Verdict::unsupported) continue;
    node_case = std::move(changed);
    return retried;
  }
  return outcome;
}

std::string annotation_of(const std::string& name, size_t rank, size_t dim) {
  std::string entries;
  for (size_t d = 0; d < rank; ++d) entries += fmt::format("{}{}", d == 0 ? "" : ", ", d == dim ? "x?" : "?");
  return fmt::format("{}=[{}]", name, entries);
}

std::string differences(const Tensors& expected, const Tensors& actual) {
  std::string text;
  for (const Difference& difference : compare(expected, actual))
    if (!difference.pass)
      text += fmt::format("'{}' is off by {}{} ", difference.name, difference.max_abs, difference.problem);
  return text;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "pass";
    case Verdict::pass_with_constants:
      return "pass with constants";
    case Verdict::unsupported:
      return "unsupported";
    case Verdict::wrong:
      return "wrong";
    case Verdict::broken:
      return "broken";
  }
  return "";
}

Outcome run_alone(const std::filesystem::path& folder) {
  try {
    NodeCase node_case = read_case(folder);
    return settle(node_case);
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::unsupported : Verdict::broken, error.what()};
  }
}

std::vector<std::string> run_sharded(const std::filesystem::path& folder, const std::vector<std::string>& meshes) {
  NodeCase node_case = read_case(folder);
  settle(node_case);
  Tensors expected = run(node_case, "x=1", "");
  std::vector<std::string> problems;
  for (const std::string& mesh : meshes)
    for (const auto& [name, tensor] : node_case.inputs)
      for (size_t dim = 0; dim < tensor.dims.size(); ++dim) {
        std::string annotation = annotation_of(name, tensor.dims.size(), dim);
        std::string problem;
        try {
          problem = differences(expected, run(node_case, mesh, annotation));
        } catch (const std::exception& error) {
          problem = error.what();
        }
        if (!problem.empty()) problems.push_back(fmt::format("{} {}: {}", mesh, annotation, problem));
      }
  return problems;
}

}  // namespace tessera::conformance
