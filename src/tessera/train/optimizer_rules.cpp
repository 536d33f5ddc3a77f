#include "tessera/train/optimizer_rules.h"

#include "tessera/base/error.h"
#include "tessera/train/keys.h"

namespace tessera {
namespace train {
namespace {

constexpr std::string_view kStage = "optimizer";  // of errors

const Bounds& not_negative() {
  static const Bounds bounds = Bounds::at_least(0);
  return bounds;
}

const Bounds& below_one() {
  static const Bounds bounds = Bounds::from_to_below(0, 1);
  return bounds;
}

/// What an optimizer's text is called, and its keys.
template <typename Rule>
struct Form;

template <>
struct Form<Sgd> {
  static constexpr std::string_view kName = "sgd";
  static Keys<Sgd> keys() {
    return {{"momentum", &Sgd::momentum, not_negative()},
            {"nesterov", &Sgd::nesterov},
            {"weight_decay", &Sgd::weight_decay, not_negative()}};
  }
};

template <typename Rule>
Keys<Rule> keys_of_moments() {
  return {{"beta1", &Rule::beta1, below_one()},
          {"beta2", &Rule::beta2, below_one()},
          {"eps", &Rule::eps, not_negative()},
          {"weight_decay", &Rule::weight_decay, not_negative()}};
}

template <>
struct Form<Adam> {
  static constexpr std::string_view kName = "adam";
  static Keys<Adam> keys() { return keys_of_moments<Adam>(); }
};

template <>
struct Form<AdamW> {
  static constexpr std::string_view kName = "adamw";
  static Keys<AdamW> keys() { return keys_of_moments<AdamW>(); }
};

template <>
struct Form<Lamb> {
  static constexpr std::string_view kName = "lamb";
  static Keys<Lamb> keys() { return keys_of_moments<Lamb>(); }
};

template <>
struct Form<Lion> {
  static constexpr std::string_view kName = "lion";
  static Keys<Lion> keys() {
    return {{"beta1", &Lion::beta1, below_one()},
            {"beta2", &Lion::beta2, below_one()},
            {"weight_decay", &Lion::weight_decay, not_negative()}};
  }
};

template <>
struct Form<Adafactor> {
  static constexpr std::string_view kName = "adafactor";
  static Keys<Adafactor> keys() {
    return {{"beta2_decay", &Adafactor::beta2_decay, {.most = 0}},
            // Its default: the gradient of a key's bias is 0 but for rounding, which float32 makes as large as 1e-9;
            // PyTorch's 2^-23 would bound the rows' means of small gradients as well.
            {"eps1", &Adafactor::eps1, Bounds::between(0, 1)},
            {"eps2", &Adafactor::eps2, not_negative()},
            {"d", &Adafactor::d, Bounds::above(0)},
            {"weight_decay", &Adafactor::weight_decay, not_negative()}};
  }
};

template <>
struct Form<Muon> {
  static constexpr std::string_view kName = "muon";
  static Keys<Muon> keys() {
    Keys<Muon> keys = keys_of_moments<Muon>();
    keys.push_back({"momentum", &Muon::momentum, not_negative()});
    keys.push_back({"nesterov", &Muon::nesterov});
    keys.push_back({"steps", &Muon::steps, Bounds::between(1, 99)});
    return keys;
  }
};

// The rule of that text, if it is of this kind.
template <typename Rule>
bool read_as(OptimizerRule& rule, Spec& spec) {
  if (spec.name() != Form<Rule>::kName) return false;
  read_keys(rule.emplace<Rule>(), Form<Rule>::keys(), spec);
  spec.finish();
  return true;
}

struct RuleReader {
  OptimizerRule operator()(const std::string& text) const {
    Spec spec(text, kStage);
    OptimizerRule rule;
    const bool known = read_as<Sgd>(rule, spec) || read_as<Adam>(rule, spec) || read_as<AdamW>(rule, spec) ||
                       read_as<Lamb>(rule, spec) || read_as<Lion>(rule, spec) || read_as<Adafactor>(rule, spec) ||
                       read_as<Muon>(rule, spec);
    if (!known)
      fail(kStage, "there is no optimizer '{}'; use sgd, adam, adamw, lamb, lion, adafactor or muon", spec.name());
    return rule;
  }
  template <typename Rule>
  OptimizerRule operator()(const Rule& rule) const {
    require_bounds(rule, Form<Rule>::keys(), kStage, Form<Rule>::kName);
    return rule;
  }
};

template <typename Rule>
std::string optimizer_text(const Rule& rule) {
  return text_with(rule, Form<Rule>::keys(), Form<Rule>::kName);
}

}  // namespace

OptimizerRule value_of(const tessera::Optimizer& rule) {
  OptimizerRule value = std::visit(RuleReader{}, rule.held());
  if (const auto* sgd = std::get_if<Sgd>(&value); sgd && sgd->nesterov && sgd->momentum <= 0)
    fail(kStage, "sgd with nesterov needs a momentum above 0; give momentum=0.9");
  return value;
}

}  // namespace train

inline namespace v1 {

Sgd::operator std::string() const {
  return train::optimizer_text(*this);
}
Adam::operator std::string() const {
  return train::optimizer_text(*this);
}
AdamW::operator std::string() const {
  return train::optimizer_text(*this);
}
Lamb::operator std::string() const {
  return train::optimizer_text(*this);
}
Lion::operator std::string() const {
  return train::optimizer_text(*this);
}
Adafactor::operator std::string() const {
  return train::optimizer_text(*this);
}
Muon::operator std::string() const {
  return train::optimizer_text(*this);
}

}  // namespace v1
}  // namespace tessera
