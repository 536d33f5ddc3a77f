#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What a report shows, read from the files that commands write.
namespace tessera::report {

using Json = nlohmann::ordered_json;

/// Microseconds since the first run of a trace began.
struct Interval {
  double begin = 0, end = 0;
  double length() const { return end > begin ? end - begin : 0; }
};

/// An operator of a track, or the part of a communication that its rank waits for.
struct Operation {
  Interval when;
  Interval moving;     ///< of a communication: while its transfer was under way, as far as known
  double waiting = 0;  ///< of a communication: until the last member arrived
  bool communication = false;
  size_t name = 0, op = 0, axes = 0;  ///< of Timeline::texts
};

/// A rank, or a class of ranks that do the same.
struct Track {
  std::string name;
  std::vector<Operation> operations;  ///< by their begin
};

struct Timeline {
  std::string title;  ///< "measured", "predicted for H100-SXM"
  std::string file;
  std::vector<std::string> texts;
  std::vector<Track> tracks;
  std::vector<double> runs;  ///< where each begins; empty: not known
  double end = 0;
};

/// What a rank holds during each operation of a step, in bytes.
struct MemoryPlan {
  std::string file;
  int64_t rank = 0;
  std::vector<std::string> operations;  ///< may be empty
  std::vector<double> states, activations, gradients, buffers;
};

/// The answer of a command (--json).
struct Answer {
  std::string file;
  Json object;
};

struct Inputs {
  std::vector<Answer> answers;
  std::vector<Timeline> timelines;
  std::vector<MemoryPlan> memory;

  /// The first answer's value under that path ("predicted/classes"); null: no answer has it.
  const Json* find(std::string_view path) const;
};

/// Throws a user error for a file that cannot be read, that is not JSON, or that holds nothing that a report shows.
Inputs read_inputs(const std::vector<std::filesystem::path>& files);

/// Adds the timelines and memory plans of a trace in Chrome's form. Returns whether there was any.
bool read_trace(const Json& events, const std::string& file, Inputs& inputs);

/// Values of an object that may lack them or have them in another form.
double number_at(const Json& object, const char* key, double otherwise = 0);
std::string text_at(const Json& object, const char* key);
/// An empty array if there is none.
const Json& list_at(const Json& object, const char* key);
/// An empty object if there is none.
const Json& object_at(const Json& object, const char* key);
/// "dp,tp" of the list `axes`.
std::string axes_of(const Json& object);

}  // namespace tessera::report
