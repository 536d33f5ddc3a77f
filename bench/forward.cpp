// Times one forward run of models on meshes beside one rank that has all cores:
//   bench_forward MODEL[:SIZES]... [--mesh MESH]...      e.g. tests/models/gpt2/model.onnx:batch=4,sequence=128
//
// A ratio above 1 says that the mesh is faster. On one machine all meshes share its cores, so the ratio shows what
// splitting and communicating cost, not what more devices would give.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/tessera.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Subject {
  std::string path;
  tessera::SymbolSizes sizes;
};

Subject parse_subject(const std::string& text) {
  Subject subject{text.substr(0, text.find(':')), {}};
  std::string rest = subject.path.size() < text.size() ? text.substr(subject.path.size() + 1) : "";
  while (!rest.empty()) {
    const std::string item = rest.substr(0, rest.find(','));
    rest.erase(0, item.size() + 1);
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw tessera::Error(tessera::ErrorKind::user, "bench", "'" + item + "' is no size; write batch=4,sequence=128");
    subject.sizes[item.substr(0, equals)] = std::stoll(item.substr(equals + 1));
  }
  return subject;
}

// Milliseconds: the median of at least 5 runs and half a second of them, after one that prepares.
double median_time(tessera::Session& session, const tessera::Tensors& inputs) {
  session.run(inputs);
  std::vector<double> times;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
  while (times.size() < 5 || Clock::now() < end) {
    const Clock::time_point start = Clock::now();
    session.run(inputs);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void measure(const Subject& subject, const std::vector<std::string>& meshes) {
  const auto model = tessera::Model::load(subject.path);
  const tessera::Tensors inputs = tessera::random_inputs(model, subject.sizes, 1);
  tessera::Plan plan;
  plan.shapes = subject.sizes;
  const auto time_on = [&](const std::string& mesh) {
    tessera::Session session(
        tessera::compile(model, mesh.empty() ? tessera::Mesh() : tessera::Mesh::parse(mesh), plan));
    return median_time(session, inputs);
  };
  const double alone = time_on("");
  std::printf("%-44s %-12s %10.2f ms\n", subject.path.c_str(), "one rank", alone);
  for (const std::string& mesh : meshes) {
    const double time = time_on(mesh);
    std::printf("%-44s %-12s %10.2f ms  %5.2f\n", "", mesh.c_str(), time, alone / time);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<Subject> subjects;
  std::vector<std::string> meshes;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mesh" && i + 1 < argc)
      meshes.emplace_back(argv[++i]);
    else
      subjects.push_back(parse_subject(argument));
  }
  if (subjects.empty()) {
    std::fprintf(stderr, "usage: bench_forward MODEL[:SIZES]... [--mesh MESH]...\n");
    return 2;
  }
  for (const Subject& subject : subjects) measure(subject, meshes);
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
