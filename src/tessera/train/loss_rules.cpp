#include "tessera/train/loss_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tessera/base/error.h"
#include "tessera/train/keys.h"

namespace tessera {
namespace train {
namespace {

constexpr std::string_view kCrossEntropy = "cross-entropy", kZLoss = "z-loss";
constexpr std::array<std::string_view, 3> kCompared = {"mse", "bce", "bce-with-logits"};
constexpr std::array<std::string_view, 2> kAlone = {"output", "mean"};  // without labels

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Keys<CrossEntropy> keys_of(const CrossEntropy& /*rule*/) {
  return {{"label_smoothing", &CrossEntropy::label_smoothing, Bounds::between(0, 1)},
          {"ignore_index", &CrossEntropy::ignore_index},
          {"axis", &CrossEntropy::axis}};
}
Keys<ZLoss> keys_of(const ZLoss& /*rule*/) {
  return {{"ignore_index", &ZLoss::ignore_index}, {"axis", &ZLoss::axis}};
}
Keys<OtherLoss> keys_of(const OtherLoss& /*rule*/) {
  return {};
}

std::string_view name_of_loss(const CrossEntropy& /*rule*/) {
  return kCrossEntropy;
}
std::string_view name_of_loss(const ZLoss& /*rule*/) {
  return kZLoss;
}
std::string_view name_of_loss(const OtherLoss& rule) {
  return rule.name;
}

// A loss of that name with its usual settings; a user error if there is none.
LossRule loss_named(const std::string& name) {
  if (name == kCrossEntropy) return CrossEntropy{};
  if (name == kZLoss) return ZLoss{};
  if (!is_one_of(kCompared, name) && !is_one_of(kAlone, name))
    fail("loss", "there is no loss '{}'; use cross-entropy, mse, bce, bce-with-logits, z-loss, output or mean", name);
  return OtherLoss{name};
}

// Cuts the weight off "WEIGHT*TERM", and returns it; 1 without one.
double cut_weight(std::string_view& term) {
  const size_t star = term.find('*');
  if (star == std::string_view::npos || star > term.find(':')) return 1;
  const std::string_view text = term.substr(0, star);
  const std::optional<double> weight = Bounds().parse(text);
  if (!weight)
    fail("loss", "'{}' in '{}' is not a weight; write for example '0.01*{}'", text, term, term.substr(star + 1));
  term.remove_prefix(star + 1);
  return *weight;
}

LossRule read_term(std::string_view term) {
  const double weight = cut_weight(term);
  Spec spec(term, "loss", true);
  LossRule read = loss_named(spec.name());
  std::visit(
      [&](auto& rule) {
        rule.weight = weight;
        rule.tensor = spec.tensor();
        read_keys(rule, keys_of(rule), spec);
        if (!is_one_of(kAlone, spec.name())) rule.labels = spec.word("labels", "");
      },
      read);
  spec.finish();
  return read;
}

// Whether the '+' at `at` belongs to a number, as in 1e+3.
bool is_of_number(std::string_view text, size_t at) {
  return at >= 2 && (text[at - 1] == 'e' || text[at - 1] == 'E') &&
         (std::isdigit(static_cast<unsigned char>(text[at - 2])) != 0 || text[at - 2] == '.') &&
         (at < 3 || std::isalpha(static_cast<unsigned char>(text[at - 3])) == 0);
}

LossSum read_terms(std::string text) {
  std::erase(text, ' ');
  LossSum sum;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && (text[at] != '+' || is_of_number(text, at))) continue;
    sum.terms.push_back(read_term(std::string_view(text).substr(begin, at - begin)));
    begin = at + 1;
  }
  return sum;
}

// A term as it can be computed. Throws a user error for one that cannot.
LossRule checked(const LossRule& given) {
  LossRule term = given;
  if (const auto* other = std::get_if<OtherLoss>(&given)) {
    term = loss_named(other->name);
    std::visit(
        [&](auto& rule) { rule.tensor = other->tensor, rule.labels = other->labels, rule.weight = other->weight; },
        term);
  }
  std::visit(
      [](const auto& rule) {
        const std::string_view name = name_of_loss(rule);
        require_bounds(rule, keys_of(rule), "loss", name);
        if (!Bounds().hold(rule.weight))
          fail("loss", "'{}' of {} is not a weight; it must be {}", rule.weight, name, Bounds().text());
        if (is_one_of(kAlone, name) && !rule.labels.empty())
          fail("loss", "'{}' has no 'labels'; it compares its tensor with nothing", name);
        if (rule.labels == kNoLabels && name != kZLoss)
          fail("loss", "{} compares the output with labels; name them", name);
      },
      term);
  return term;
}

struct SumReader {
  LossSum operator()(const std::string& text) const { return read_terms(text); }
  LossSum operator()(const LossSum& sum) const { return sum; }
  template <typename Rule>
  LossSum operator()(const Rule& term) const {
    return {{LossRule(term)}};
  }
};

// What is compared with what, as a text holds it.
template <typename Rule>
std::string tensors_text(const Rule& rule) {
  for (const std::string* name : {&rule.tensor, &rule.labels})
    if (name->find_first_of(",+=* ") != std::string::npos)
      fail("loss",
           "the text of a loss cannot name '{}', which has one of ',', '+', '=', '*' and ' '; use the loss itself, or "
           "rename the tensor",
           *name);
  std::string text = rule.tensor;
  if (!rule.labels.empty()) text += fmt::format("{}labels={}", text.empty() ? "" : ",", rule.labels);
  return text;
}

template <typename Rule>
std::string loss_text(const Rule& rule) {
  const std::string text = text_with(rule, keys_of(rule), name_of_loss(rule), tensors_text(rule));
  return rule.weight == 1 ? text : fmt::format("{}*{}", rule.weight, text);
}

}  // namespace

std::string name_of(const LossRule& rule) {
  return std::visit([](const auto& term) { return std::string(name_of_loss(term)); }, rule);
}

LossSum value_of(const tessera::Loss& rule) {
  LossSum sum = std::visit(SumReader{}, rule.held());
  if (sum.terms.empty()) fail("loss", "the loss has no terms; give one");
  for (LossRule& term : sum.terms) term = checked(term);
  return sum;
}

}  // namespace train

inline namespace v1 {

CrossEntropy::operator std::string() const {
  return train::loss_text(*this);
}
ZLoss::operator std::string() const {
  return train::loss_text(*this);
}
OtherLoss::operator std::string() const {
  return train::loss_text(*this);
}
LossSum::operator std::string() const {
  std::string text;
  for (const auto& term : terms)
    text += (text.empty() ? "" : "+") + std::visit([](const auto& rule) { return std::string(rule); }, term);
  return text;
}

LossSum sum_of(const std::vector<Loss>& losses) {
  LossSum sum;
  for (const Loss& loss : losses)
    for (train::LossRule& term : train::value_of(loss).terms) sum.terms.push_back(std::move(term));
  return sum;
}

}  // namespace v1
}  // namespace tessera
