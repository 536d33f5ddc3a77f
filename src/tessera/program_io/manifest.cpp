#include "tessera/program_io/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/path_within.h"
#include "tessera/io/mapped_file.h"
#include "tessera/program_io/written_program.h"

namespace tessera::program_io {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera program";
// Incremented when the manifest's content, or the numbering of programs (proof/meaning.h), changes.
constexpr int64_t kVersion = 5;

Json json_of(const Manifest::Tensor& tensor, const Mesh& mesh) {
  Json shape = Json::array();
  for (const Expr& extent : *tensor.global.shape) shape.push_back(extent.str());
  return {{"name", tensor.name},
          {"value", tensor.value},
          {"dtype", name_of(tensor.global.dtype)},
          {"shape", shape},
          {"sharding", tensor.sharding.str(mesh)}};
}

Json json_of(const FileStamp& stamp) {
  return {{"file", stamp.file}, {"bytes", stamp.bytes}, {"crc32", fmt::format("{:08x}", stamp.crc32)}};
}

Json json_of(const Manifest::RankFile& file, bool is_weights) {
  Json json = json_of(file.stamp);
  json["ranks"] = print_ranks(file.ranks);
  if (file.init) json["init"] = json_of(*file.init);
  if (is_weights) json["hashes"] = Json::object();  // also for a rank without states
  for (const auto& [value, hash] : file.hashes) json["hashes"][value] = fmt::format("{:016x}", hash);
  return json;
}

// 24 bits each.
constexpr size_t kDigits = 4;
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string print_steps(const std::vector<uint32_t>& steps) {
  std::string text;
  for (uint32_t step : steps)
    for (size_t digit = kDigits; digit-- > 0;) text += kAlphabet[step >> (6 * digit) & 63];
  return text;
}

std::optional<std::vector<uint32_t>> parse_steps(std::string_view text) {
  std::vector<uint32_t> steps;
  if (text.size() % kDigits != 0) return std::nullopt;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t digit = kAlphabet.find(text[at]);
    if (digit == std::string_view::npos) return std::nullopt;
    if (at % kDigits == 0) steps.push_back(0);
    steps.back() = steps.back() << 6 | static_cast<uint32_t>(digit);
  }
  return std::is_sorted(steps.begin(), steps.end()) ? std::optional(std::move(steps)) : std::nullopt;
}

std::string print_number(const proof::Number& number) {
  return fmt::format("{:016x}{:016x}", number.high, number.low);
}

Json json_of(const Manifest::RankMeaning& meaning) {
  return {{"ranks", print_ranks(meaning.ranks)},
          {"written", print_number(meaning.written)},
          {"normal", print_number(meaning.normal.whole)},
          {"steps", print_steps(meaning.normal.steps)}};
}

template <typename List, typename... Args>
Json json_list(const List& list, const Args&... args) {
  Json all = Json::array();
  for (const auto& each : list) all.push_back(json_of(each, args...));
  return all;
}

// An entry of the manifest, with its place for messages: "models[1].ranks".
class Entry {
 public:
  Entry(const Json& json, std::string path, std::string place)
      : json_(json), path_(std::move(path)), place_(std::move(place)) {}

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail("program", "'{}': {}{}{}; write the program again", path_, place_, place_.empty() ? "" : " ",
         fmt::format(format, std::forward<Args>(args)...));
  }

  /// Requires an object with these entries and no others.
  void expect(const std::set<std::string>& names) const {
    if (!json_.is_object()) wrong("is not an object");
    for (const auto& [name, value] : json_.items())
      if (!names.contains(name)) wrong("has an unknown entry '{}'", name);
  }

  Entry at(const std::string& name) const {
    if (!json_.is_object() || !json_.contains(name)) wrong("has no entry '{}'", name);
    return {json_.at(name), path_, place_.empty() ? name : place_ + "." + name};
  }
  std::vector<Entry> list() const {
    if (!json_.is_array()) wrong("is not a list");
    std::vector<Entry> all;
    for (size_t i = 0; i < json_.size(); ++i) all.emplace_back(json_[i], path_, fmt::format("{}[{}]", place_, i));
    return all;
  }
  std::string text() const {
    if (!json_.is_string()) wrong("is not a text");
    return json_.get<std::string>();
  }
  bool truth() const {
    if (!json_.is_boolean()) wrong("is neither true nor false");
    return json_.get<bool>();
  }
  int64_t number() const {
    if (!json_.is_number_integer() || json_.get<int64_t>() < 0) wrong("is not a number of 0 or more");
    return json_.get<int64_t>();
  }
  /// Reads that many hexadecimal digits.
  uint64_t digits(size_t count, std::string_view what) const {
    const std::string all = text();
    if (all.size() != count || all.find_first_not_of("0123456789abcdef") != std::string::npos)
      wrong("'{}' is not a {} of {} hexadecimal digits", all, what, count);
    return std::stoull(all, nullptr, 16);
  }
  const Json& json() const { return json_; }
  const std::string& place() const { return place_; }

 private:
  const Json& json_;
  std::string path_, place_;
};

Mesh read_mesh(const Entry& entry) {
  std::string text = entry.text();
  try {
    return Mesh::parse(text);
  } catch (const Error& error) {
    entry.wrong("is not a mesh: {}", error.what());
  }
}

void read_form(const Entry& entry, Manifest& manifest) {
  std::map<std::string, std::string> words = manifest.form.words();
  std::set<std::string> names = {"token"};
  for (auto& [name, word] : words) names.insert(name);
  entry.expect(names);
  for (auto& [name, word] : words) word = entry.at(name).text();
  try {
    manifest.form = WriteOptions::from_words(words);
  } catch (const Error& error) {
    entry.wrong("is invalid: {}", error.what());
  }
  if (!entry.at("token").json().is_null()) manifest.token = entry.at("token").text();
}

void read_tensor(const Entry& entry, const Mesh& mesh, Manifest::Tensor& tensor) {
  tensor.name = entry.at("name").text();
  tensor.value = entry.at("value").text();
  tensor.global.dtype = dtype_named(entry.at("dtype").text());
  if (tensor.global.dtype == DType::undefined) entry.at("dtype").wrong("'{}' is not a type", entry.at("dtype").text());
  Shape& shape = tensor.global.shape.emplace();
  for (const Entry& extent : entry.at("shape").list()) {
    auto parsed = Expr::parse(extent.text());
    if (!parsed) extent.wrong("'{}' is not an extent", extent.text());
    if (extent.text().find('@') != std::string::npos)
      extent.wrong("'{}' depends on the rank, but whole tensors are the same on all ranks", extent.text());
    shape.push_back(*parsed);
  }
  try {
    tensor.sharding = parse_sharding(entry.at("sharding").text(), shape, mesh, tensor.name);
  } catch (const Error& error) {
    entry.at("sharding").wrong("is invalid: {}", error.what());
  }
}

std::vector<int> read_ranks(const Entry& entry, int64_t ranks) {
  auto list = parse_ranks(entry.text(), ranks);
  if (!list) entry.wrong("'{}' is not a list of ranks of this mesh", entry.text());
  return std::move(*list);
}

FileStamp read_stamp(const Entry& entry) {
  FileStamp stamp;
  stamp.file = entry.at("file").text();
  std::filesystem::path relative(stamp.file);
  if (relative.empty() || relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end())
    entry.at("file").wrong("'{}' leads out of the program's folder", stamp.file);
  stamp.bytes = static_cast<uint64_t>(entry.at("bytes").number());
  stamp.crc32 = static_cast<uint32_t>(entry.at("crc32").digits(8, "CRC-32"));
  return stamp;
}

Manifest::RankFile read_file(const Entry& entry, int64_t ranks) {
  Manifest::RankFile file;
  file.stamp = read_stamp(entry);
  file.ranks = read_ranks(entry.at("ranks"), ranks);
  return file;
}

Manifest::RankFile read_model_file(const Entry& entry, int64_t ranks) {
  entry.expect({"file", "bytes", "crc32", "ranks", "init"});
  Manifest::RankFile file = read_file(entry, ranks);
  if (!entry.json().contains("init")) return file;
  const Entry init = entry.at("init");
  init.expect({"file", "bytes", "crc32"});
  file.init = read_stamp(init);
  return file;
}

Manifest::RankFile read_weights_file(const Entry& entry, int64_t ranks) {
  entry.expect({"file", "bytes", "crc32", "ranks", "hashes"});
  Manifest::RankFile file = read_file(entry, ranks);
  const Entry hashes = entry.at("hashes");
  if (!hashes.json().is_object()) hashes.wrong("is not an object");
  for (const auto& [value, hash] : hashes.json().items()) file.hashes[value] = hashes.at(value).digits(16, "hash");
  return file;
}

proof::Number read_number(const Entry& entry) {
  const std::string digits = entry.text();
  if (digits.size() != 32 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    entry.wrong("'{}' is not a number of 32 hexadecimal digits", digits);
  return {std::stoull(digits.substr(0, 16), nullptr, 16), std::stoull(digits.substr(16), nullptr, 16)};
}

Manifest::RankMeaning read_meaning(const Entry& entry, int64_t ranks) {
  entry.expect({"ranks", "written", "normal", "steps"});
  Manifest::RankMeaning meaning;
  meaning.ranks = read_ranks(entry.at("ranks"), ranks);
  meaning.written = read_number(entry.at("written"));
  meaning.normal.whole = read_number(entry.at("normal"));
  auto steps = parse_steps(entry.at("steps").text());
  if (!steps) entry.at("steps").wrong("is not a list of sorted numbers");
  meaning.normal.steps = std::move(*steps);
  return meaning;
}

StateOrigin read_origin(const Entry& entry, const TensorType& piece) {
  entry.expect({"name", "shape", "begin"});
  StateOrigin origin{entry.at("name").text(), {}, {}};
  for (const Entry& extent : entry.at("shape").list()) origin.dims.push_back(extent.number());
  for (const Entry& begin : entry.at("begin").list()) origin.begin.push_back(begin.number());
  const auto own = constants_of(*piece.shape);
  bool fits = own && own->size() == origin.dims.size() && own->size() == origin.begin.size();
  for (size_t d = 0; fits && d < own->size(); ++d)
    fits = origin.dims[d] >= (*own)[d] && origin.begin[d] <= origin.dims[d] - (*own)[d];
  if (!fits) entry.wrong("says that the state is a piece of '{}' that '{}' does not have", origin.name, origin.name);
  return origin;
}

// Either every rank has one `what`, or none has.
template <typename Read>
auto read_by_rank(const Entry& entry, int64_t ranks, std::string_view what, Read read) {
  std::vector<decltype(read(entry, ranks))> all;
  std::vector<bool> served(static_cast<size_t>(ranks), false);
  for (const Entry& each : entry.list()) {
    all.push_back(read(each, ranks));
    for (int rank : all.back().ranks) {
      if (served[rank]) each.at("ranks").wrong("gives rank {} a second {}", rank, what);
      served[rank] = true;
    }
  }
  auto without = std::find(served.begin(), served.end(), false);
  if (!all.empty() && without != served.end()) entry.wrong("has no {} for rank {}", what, without - served.begin());
  return all;
}

}  // namespace

std::vector<FileStamp*> Manifest::model_stamps() {
  std::vector<FileStamp*> all;
  for (RankFile& model : models) {
    all.push_back(&model.stamp);
    if (model.init) all.push_back(&*model.init);
  }
  return all;
}

std::string Manifest::to_json() const {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["tessera"] = tessera;
  json["source"] = source;
  json["mesh"] = mesh.str();
  json["form"] = form.words();
  json["form"]["token"] = token ? Json(*token) : Json(nullptr);
  json["hints"] = Json::object();
  for (const auto& [symbol, value] : hints) json["hints"][symbol] = value;
  json["equal_extents"] = Json::array();
  for (const spmd::ExtentEquality& equality : equal_extents)
    json["equal_extents"].push_back({{"a", equality.a.str()},
                                     {"b", equality.b.str()},
                                     {"node", equality.node},
                                     {"broadcasts", equality.broadcasts}});
  json["inputs"] = json_list(inputs, mesh);
  json["outputs"] = json_list(outputs, mesh);
  json["states"] = Json::array();
  for (const State& state : states) {
    Json entry = json_of(state, mesh);
    entry["next"] = state.next ? Json(*state.next) : Json(nullptr);
    entry["changes"] = state.changes;
    if (state.origin)
      entry["origin"] = {{"name", state.origin->name}, {"shape", state.origin->dims}, {"begin", state.origin->begin}};
    json["states"].push_back(std::move(entry));
  }
  json["init"] = init;
  json["models"] = json_list(models, false);
  json["weights"] = json_list(weights, true);
  json["meanings"] = json_list(meanings);
  try {
    return json.dump(1, ' ') + "\n";
  } catch (const Json::exception& error) {
    fail("write", "the program cannot be described in JSON: {}; rename tensors whose names are not UTF-8",
         error.what());
  }
}

Manifest Manifest::from_json(std::string_view text, const std::filesystem::path& path) {
  Json json = Json::parse(text, nullptr, false);
  Entry root(json, path.string(), "");
  if (json.is_discarded()) root.wrong("is not JSON: it is damaged or truncated");
  if (root.at("format").text() != kFormat) root.wrong("is not a manifest of a written program");
  if (int64_t version = root.at("version").number(); version != kVersion)
    root.wrong("has format version {}, but this tessera reads version {}; write the program again", version, kVersion);
  root.expect({"format", "version", "tessera", "source", "mesh", "form", "hints", "equal_extents", "inputs", "outputs",
               "states", "init", "models", "weights", "meanings"});
  Manifest manifest;
  manifest.tessera = root.at("tessera").text();
  manifest.source = root.at("source").text();
  manifest.mesh = read_mesh(root.at("mesh"));
  read_form(root.at("form"), manifest);
  Entry hints = root.at("hints");
  if (!hints.json().is_object()) hints.wrong("is not an object");
  for (const auto& [symbol, value] : hints.json().items()) manifest.hints[symbol] = hints.at(symbol).number();
  for (const Entry& entry : root.at("equal_extents").list()) {
    entry.expect({"a", "b", "node", "broadcasts"});
    auto a = Expr::parse(entry.at("a").text()), b = Expr::parse(entry.at("b").text());
    if (!a || !b) entry.wrong("is not a pair of expressions");
    const bool broadcasts = entry.json().contains("broadcasts") && entry.at("broadcasts").truth();
    manifest.equal_extents.push_back({*a, *b, entry.at("node").text(), broadcasts});
  }
  const std::set<std::string> entries = {"name", "value", "dtype", "shape", "sharding"};
  auto read_ports = [&](const char* name, std::vector<Tensor>& ports) {
    for (const Entry& entry : root.at(name).list()) {
      entry.expect(entries);
      read_tensor(entry, manifest.mesh, ports.emplace_back());
    }
  };
  read_ports("inputs", manifest.inputs);
  read_ports("outputs", manifest.outputs);
  std::set<std::string> of_state = entries;
  of_state.insert({"next", "changes", "origin"});
  for (const Entry& entry : root.at("states").list()) {
    entry.expect(of_state);
    State& state = manifest.states.emplace_back();
    read_tensor(entry, manifest.mesh, state);
    if (!entry.at("next").json().is_null()) state.next = entry.at("next").text();
    const auto& changes = entry.at("changes").json();
    if (!changes.is_boolean()) entry.at("changes").wrong("is neither true nor false");
    state.changes = changes.template get<bool>();
    if (entry.json().contains("origin")) state.origin = read_origin(entry.at("origin"), state.global);
    if (state.next && !state.changes) entry.at("changes").wrong("is false, but the state has a next value");
  }
  for (const Entry& entry : root.at("init").list()) manifest.init.push_back(entry.text());
  manifest.models = read_by_rank(root.at("models"), manifest.mesh.size(), "file", read_model_file);
  if (manifest.models.empty()) root.at("models").wrong("is empty");
  manifest.weights = read_by_rank(root.at("weights"), manifest.mesh.size(), "file", read_weights_file);
  if (manifest.weights.empty() && !manifest.states.empty()) root.at("weights").wrong("is empty, but there are states");
  manifest.meanings = read_by_rank(root.at("meanings"), manifest.mesh.size(), "meaning", read_meaning);
  if (manifest.meanings.empty()) root.at("meanings").wrong("is empty");
  return manifest;
}

namespace {

// Stamps identify a folder's files; a link out of the folder leads to a file that others may change.
void require_within(const std::filesystem::path& folder, const std::string& file) {
  std::optional<std::filesystem::path> found;
  try {
    found = path_within({folder}, file);
  } catch (const std::filesystem::filesystem_error& error) {
    fail("program", "'{}': cannot examine '{}': {}", folder.string(), file, error.code().message());
  }
  if (!found)
    fail("program", "'{}' leads out of the program's folder through a symbolic link; put the file itself there",
         (folder / file).string());
}

}  // namespace

Manifest read_manifest(const std::filesystem::path& folder) {
  if (!is_written_program(folder))
    fail("program", "'{}' holds no {}: it is not a written program; name a folder that `Program::write` wrote",
         folder.string(), kManifestFile);
  require_within(folder, std::string(kManifestFile));
  Manifest manifest =
      Manifest::from_json(MappedFile::open(folder / kManifestFile, "program")->view(), folder / kManifestFile);
  for (const auto* files : {&manifest.models, &manifest.weights})
    for (const Manifest::RankFile& file : *files) {
      require_within(folder, file.stamp.file);
      if (file.init) require_within(folder, file.init->file);
    }
  return manifest;
}

}  // namespace tessera::program_io
