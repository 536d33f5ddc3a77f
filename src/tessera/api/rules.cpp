#include "tessera/rules.h"

#include <fmt/ranges.h>

#include "tessera/base/error.h"

namespace tessera {
inline namespace v1 {
namespace {

/// "NAME:key=1,key=2"
class Words {
 public:
  explicit Words(std::string name) : text_(std::move(name)) {}

  template <typename T>
  Words& with(std::string_view key, const T& value) {
    return add(fmt::format("{}={}", key, value));
  }
  template <typename T>
  Words& with(std::string_view key, const std::optional<T>& value) {
    return value ? with(key, *value) : *this;
  }
  /// What is compared with what.
  Words& of(const std::string& tensor, const std::string& labels) {
    for (const std::string* name : {&tensor, &labels})
      if (name->find_first_of(",+=*") != std::string::npos)
        fail("loss", "'{}' cannot be named in a loss, since it has one of ',', '+', '=' and '*'; rename the tensor",
             *name);
    if (!tensor.empty()) add(tensor);
    return labels.empty() ? *this : with("labels", labels);
  }
  std::string weighted(double weight) const { return weight == 1 ? text_ : fmt::format("{}*{}", weight, text_); }
  const std::string& text() const { return text_; }

 private:
  Words& add(const std::string& entry) {
    text_ += (has_entries_ ? "," : ":") + entry;
    has_entries_ = true;
    return *this;
  }

  std::string text_;
  bool has_entries_ = false;
};

template <typename Rule>
Words moments_of(const char* name, const Rule& rule) {
  Words words(name);
  words.with("beta1", rule.beta1).with("beta2", rule.beta2).with("eps", rule.eps);
  return words.with("weight_decay", rule.weight_decay);
}

}  // namespace

Sgd::operator std::string() const {
  return Words("sgd").with("momentum", momentum).with("nesterov", nesterov).with("weight_decay", weight_decay).text();
}
Adam::operator std::string() const {
  return moments_of("adam", *this).text();
}
AdamW::operator std::string() const {
  return moments_of("adamw", *this).text();
}
Lamb::operator std::string() const {
  return moments_of("lamb", *this).text();
}
Lion::operator std::string() const {
  return Words("lion").with("beta1", beta1).with("beta2", beta2).with("weight_decay", weight_decay).text();
}
Adafactor::operator std::string() const {
  Words words("adafactor");
  words.with("beta2_decay", beta2_decay).with("eps1", eps1).with("eps2", eps2).with("d", d);
  return words.with("weight_decay", weight_decay).text();
}
Muon::operator std::string() const {
  return moments_of("muon", *this).with("momentum", momentum).with("nesterov", nesterov).with("steps", steps).text();
}

LearningRate::operator std::string() const {
  std::string text = fmt::format("peak={},warmup={},stable={},min={}", peak, warmup, stable, min);
  if (cosine > 0) text += fmt::format(",cosine={}", cosine);
  if (linear > 0) text += fmt::format(",linear={}", linear);
  return text;
}

CrossEntropy::operator std::string() const {
  Words words("cross-entropy");
  words.of(tensor, labels).with("label_smoothing", label_smoothing).with("ignore_index", ignore_index);
  return words.with("axis", axis).weighted(weight);
}
ZLoss::operator std::string() const {
  return Words("z-loss").of(tensor, labels).with("ignore_index", ignore_index).with("axis", axis).weighted(weight);
}
OtherLoss::operator std::string() const {
  return Words(name).of(tensor, labels).weighted(weight);
}
std::string sum_of(const std::vector<std::string>& terms) {
  return fmt::format("{}", fmt::join(terms, "+"));
}

}  // namespace v1
}  // namespace tessera
