#include "conformance/run_case.h"

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compare.h"

namespace tessera::conformance {
namespace {

using Tensors = std::map<std::string, Tensor>;

Model model_of(const NodeCase& node_case) {
  return Model(std::make_shared<Model::Impl>(node_case.name, node_case.model.clone(), std::vector<uint64_t>()));
}

Tensors run(const NodeCase& node_case, const std::string& mesh, const std::string& annotation) {
  Plan plan;
  if (!annotation.empty()) plan.annotations.push_back({annotation});
  SessionOptions options;
  options.threads_per_rank = 1;
  options.timeout = std::chrono::seconds(20);
  return Session(model_of(node_case), Mesh::parse(mesh), plan, {}, options).run(node_case.inputs);
}

Outcome judge(const NodeCase& node_case) {
  try {
    Tensors actual = run(node_case, "x=1", "");
    for (const auto& [name, expected] : node_case.outputs) {
      if (!actual.contains(name)) return {Verdict::wrong, fmt::format("'{}' is missing", name)};
      std::string problem = mismatch(name, expected, actual.at(name), node_case.tolerance);
      if (!problem.empty()) return {Verdict::wrong, problem};
    }
    return {Verdict::pass, ""};
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::unsupported : Verdict::broken, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::broken, error.what()};
  }
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
    return judge(read_case(folder));
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::unsupported : Verdict::broken, error.what()};
  }
}

std::vector<std::string> run_sharded(const std::filesystem::path& folder, const std::vector<std::string>& meshes) {
  const NodeCase node_case = read_case(folder);
  Tensors expected = run(node_case, "x=1", "");
  std::vector<std::string> problems;
  std::map<std::string, Tensor> laid_out = node_case.inputs;
  for (const std::string& name : model_of(node_case).impl().value_inputs()) laid_out.erase(name);
  // Elements of less than a byte stay together.
  std::erase_if(laid_out, [](const auto& input) { return bits_of(input.second.dtype) % 8 != 0; });
  for (const std::string& mesh : meshes)
    for (const auto& [name, tensor] : laid_out)
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
