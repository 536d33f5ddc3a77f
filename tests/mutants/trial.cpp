#include "mutants/trial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/check.h"

namespace tessera::mutants {
namespace {

namespace fs = std::filesystem;
using testing_io::contents;
using testing_io::put;

constexpr std::chrono::seconds kPatience{30};  // a busy machine does not hang
/// How often a mutator that finds nothing to do is replaced by another.
constexpr int kDraws = 8;
/// Relative to the largest value of an output, if a source states no tolerance.
constexpr double kRounding = 2e-5;

Tensors answer_of(const Program& program, const Tensors& inputs) {
  SessionOptions options;
  options.threads_per_rank = 1;
  options.timeout = kPatience;
  return Session(program, options).run(inputs);
}

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  auto take = [&](auto elements) {
    for (auto element : elements) numbers.push_back(static_cast<double>(static_cast<float>(element)));
  };
  switch (tensor.dtype) {
    case DType::float32:
      take(tensor.as<float>());
      break;
    case DType::float16:
      take(tensor.as<Float16>());
      break;
    case DType::bfloat16:
      take(tensor.as<BFloat16>());
      break;
    case DType::float64: {
      auto elements = tensor.as<double>();
      numbers.assign(elements.begin(), elements.end());
      break;
    }
    default:
      for (int64_t element : tensor.to_int64()) numbers.push_back(static_cast<double>(element));
  }
  return numbers;
}

// "" if the answers are the same within tolerances by name, else within a share of the largest number.
std::string difference_of(const Tensors& answer, const Tensors& expected,
                          const std::map<std::string, double>& tolerances) {
  for (const auto& [name, wanted] : expected) {
    auto found = answer.find(name);
    if (found == answer.end()) return "the output '" + name + "' is missing";
    const Tensor& given = found->second;
    if (given.dtype != wanted.dtype || given.dims != wanted.dims) return "'" + name + "' has another type";
    if (given.bytes == 0 || std::memcmp(given.data, wanted.data, given.bytes) == 0) continue;
    const std::vector<double> a = numbers_of(given), b = numbers_of(wanted);
    double largest = 0, off = 0;
    for (double number : b)
      if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      const double apart = std::abs(a[i] - b[i]);
      off = std::max(off, std::isfinite(apart) ? apart : INFINITY);
    }
    auto stated = tolerances.find(name);
    if (off > (stated == tolerances.end() ? kRounding * largest : stated->second))
      return fmt::format("'{}' is off by {:.2g}, where the largest number is {:.2g}", name, off, largest);
  }
  return "";
}

onnx::ModelProto parsed_model(const fs::path& path) {
  onnx::ModelProto proto;
  check(proto.ParseFromString(contents(path)), "written models can be parsed");
  return proto;
}

// The subject of an edit: drawn in one model and found again in others.
struct Aim {
  NodeKey node;
  std::string tensor;
  uint64_t dice = 0;
};

onnx::TensorProto* tensor_named(EditedModel& model, const std::string& name) {
  for (const Scope& scope : model.scopes())
    if (scope.graph)
      for (onnx::TensorProto& tensor : *scope.graph->mutable_initializer())
        if (tensor.name() == name) return &tensor;
  return nullptr;
}

std::optional<Aim> aim(const Mutator& mutator, EditedModel& model, Random& random) {
  Aim aim;
  if (mutator.edit) {
    std::vector<Site> fit, in_functions;
    for (const Site& site : sites(model))
      if (mutator.fits(site)) (site.in_function() ? in_functions : fit).push_back(site);
    if (fit.empty() || (!in_functions.empty() && random.one_in(4))) fit.swap(in_functions);  // which have most nodes
    if (fit.empty()) return std::nullopt;
    aim.node = key_of(random.one_of(fit));
  } else if (mutator.edit_tensor) {
    std::vector<std::string> fit;
    for (const Scope& scope : model.scopes())
      if (scope.graph)
        for (const onnx::TensorProto& tensor : scope.graph->initializer())
          if (mutator.fits_tensor(tensor)) fit.push_back(tensor.name());
    if (fit.empty()) return std::nullopt;
    aim.tensor = random.one_of(fit);
  }
  aim.dice = random.seed();
  return aim;
}

bool has(const Mutator& mutator, const Aim& aim, EditedModel& model) {
  if (mutator.edit) {
    auto site = find(model, aim.node);
    return site && mutator.fits(*site);
  }
  if (mutator.edit_tensor) {
    auto* tensor = tensor_named(model, aim.tensor);
    return tensor && mutator.fits_tensor(*tensor);
  }
  return true;
}

std::string apply(const Mutator& mutator, const Aim& aim, EditedModel& model) {
  Random random(aim.dice);
  if (!has(mutator, aim, model)) return "";
  if (mutator.edit) return mutator.edit(*find(model, aim.node), random);
  if (mutator.edit_tensor) return mutator.edit_tensor(model, *tensor_named(model, aim.tensor), random);
  return mutator.edit_model(model, random);
}

}  // namespace

/// A program's folder, its contents, and its answer.
struct Trials::Written {
  uint64_t k = 0;
  Subject subject;
  std::shared_ptr<const Source> source;
  testing_io::TemporaryFolder place;
  fs::path folder;
  std::map<std::string, EditedModel> files;
  std::map<std::string, std::string> bytes;  ///< of models and the manifest
  Tensors expected;
  std::string flaw;  ///< why it cannot be edited: it is refused, or wrong, as it is
};

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 6> kNames = {"refused", "equal", "escaped", "wronged", "broke", "nothing"};
  return kNames[static_cast<size_t>(verdict)];
}

bool Trials::open(uint64_t k) {
  if (written_ && written_->k == k) return written_->source != nullptr;
  written_ = std::make_shared<Written>();
  Written& w = *written_;
  w.k = k;
  w.subject = subject(k);
  w.folder = w.place / "out";
  std::optional<Program> program;
  try {
    w.source = sources_.of(w.subject);
    if (!w.source) return false;
    program = compiled(*w.source);
    w.expected = answer_of(compiled_whole(*w.source), w.source->inputs);
  } catch (const Error&) {
    if (!w.subject.random_program) throw;
    w.source = nullptr;  // their own tests say which may be refused
    return false;
  }
  try {
    program->write(w.folder, w.subject.form);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("has no function in ONNX's own operators") != std::string_view::npos)
      w.source = nullptr;  // a refusal that has tests of its own
    else
      w.flaw = error.what();
    return w.source != nullptr;
  }
  for (const auto& entry : fs::directory_iterator(w.folder)) {
    const std::string name = entry.path().filename();
    if (!entry.is_regular_file()) continue;
    w.bytes[name] = contents(entry.path());
    if (name.ends_with(".onnx")) w.files[name] = {parsed_model(entry.path()), w.subject.form, w.source->mesh};
  }
  try {
    const CheckReport report = accept_changed_models(w.folder);
    if (!report.good())
      w.flaw = "it is refused as it was written: " + report.findings.front().message;
    else
      w.flaw = difference(answer_of(Program::read(w.folder), w.source->inputs));
  } catch (const Error& error) {
    w.flaw = error.what();
  }
  return true;
}

std::string Trials::difference(const Tensors& answer) const {
  return difference_of(answer, written_->expected, written_->source->tolerances);
}

/// An edit of some files; of none if there was nothing to do.
struct Trials::Edit {
  std::string what;
  std::map<std::string, EditedModel> files;  ///< as they are then
};

Trials::Edit Trials::edit(const Mutator& mutator, Random& random, bool may_strip) const {
  Edit edit;
  const auto& files = written_->files;
  std::vector<std::string> names;
  for (const auto& [name, model] : files) names.push_back(name);
  const std::string first = random.one_of(names);
  const bool one = names.size() > 1 && random.one_in(2);
  EditedModel model = files.at(first);
  auto drawn = aim(mutator, model, random);
  if (!drawn) return edit;
  std::swap(names.front(), *std::find(names.begin(), names.end(), first));
  for (const std::string& name : names) {
    model = files.at(name);
    if (one && name != first) continue;
    const std::string what = apply(mutator, *drawn, model);
    if (what.empty() && name == first) return edit;
    if (what.empty()) continue;
    edit.files[name] = std::move(model);
    edit.what += (edit.what.empty() ? "" : "; ") + name + ": " + what;
  }
  if (may_strip && random.one_in(6)) {
    for (auto& [name, edited] : edit.files) strip_notes(edited);
    edit.what += "; types and metadata are taken away";
  }
  return edit;
}

Outcome Trials::run(uint64_t seed, const std::string& mutator, const std::function<void(const Outcome&)>& about_to) {
  const uint64_t k = (seed + kAlike - 1) / kAlike;  // of the first seed, 1, and those after it
  about_to({Verdict::broke, "none", subject(k).str() + ": as it is"});
  if (!open(k)) return {Verdict::nothing, "", ""};
  Written& w = *written_;
  if (!w.flaw.empty()) {
    Outcome outcome{Verdict::wronged, "none", w.subject.str() + ": " + w.flaw};
    w.source = nullptr;  // reported only once
    return outcome;
  }
  Random random(seed);
  const std::vector<Mutator>& list = mutator.empty() && random.one_in(8) ? harmless() : mutators();
  for (int draw = 0; draw < kDraws; ++draw) {
    const Mutator* chosen = &random.one_of(list);
    if (!mutator.empty())
      for (const auto* all : {&mutators(), &harmless()})
        for (const Mutator& each : *all)
          if (each.name == mutator) chosen = &each;
    const bool right = std::any_of(harmless().begin(), harmless().end(),
                                   [&](const Mutator& each) { return each.name == chosen->name; });
    const Edit edited = edit(*chosen, random, !right);
    if (edited.files.empty()) continue;
    const std::string what = fmt::format("{}: {}: {}", w.subject.str(), chosen->name, edited.what);
    about_to({Verdict::broke, std::string(chosen->name), what});
    Outcome outcome = judge(right, edited);
    outcome.mutator = chosen->name;
    outcome.message = what + ": " + outcome.message;
    return outcome;
  }
  return {Verdict::nothing, mutator, ""};
}

Outcome Trials::judge(bool right, const Edit& edit) {
  Written& w = *written_;
  auto restore = [&] {
    for (const auto& [name, bytes] : w.bytes) put(w.folder / name.c_str(), bytes);
  };
  for (const auto& [name, model] : edit.files) put(w.folder / name.c_str(), model.proto.SerializeAsString());
  Outcome outcome;
  try {
    const CheckReport report = accept_changed_models(w.folder);
    if (!report.good())
      outcome = {Verdict::refused, "", report.findings.front().message};
    else
      outcome.verdict = Verdict::equal;
  } catch (const Error& error) {
    outcome = {error.kind() == ErrorKind::user ? Verdict::refused : Verdict::broke, "", error.what()};
  } catch (const std::exception& error) {
    outcome = {Verdict::broke, "", error.what()};
  }
  if (outcome.verdict == Verdict::equal) try {
      outcome.message = difference(answer_of(Program::read(w.folder), w.source->inputs));
      if (!outcome.message.empty()) outcome.verdict = Verdict::escaped;
    } catch (const std::exception& error) {
      outcome = {Verdict::escaped, "", error.what()};
    }
  if (right && outcome.verdict == Verdict::refused) outcome.verdict = Verdict::wronged;
  restore();
  return outcome;
}

}  // namespace tessera::mutants
