#include "tessera/train/loss.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/train/spec.h"

namespace tessera::train {
namespace {

using ops::NodeBuilder;

Value* sum_of_all(NodeBuilder& build, Value* value) {
  return value->rank() == 0 ? value : build.sum(value, ops::all_axes(value->rank()), false);
}

Value* wide(NodeBuilder& build, Value* value) {
  return bits_of(value->dtype()) < 32 ? build.cast(value, DType::float32) : value;
}

Expr elements_of(const Shape& shape) {
  Expr count = 1;
  for (const Expr& extent : shape) count = count * extent;
  return count;
}

int64_t last_axis(const Value* value) {
  return static_cast<int64_t>(value->rank()) - 1;
}

// Cuts the weight off "WEIGHT*TERM", and returns it; 1 without one.
double cut_weight(std::string_view& term) {
  const size_t star = term.find('*');
  if (star == std::string_view::npos || star > term.find(':')) return 1;
  const std::string_view text = term.substr(0, star);
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(weight))
    fail("loss", "'{}' in '{}' is no weight; write for example '0.01*{}'", text, term, term.substr(star + 1));
  term.remove_prefix(star + 1);
  return weight;
}

// Whether the '+' at `at` belongs to a number, as in 1e+3.
bool is_of_number(std::string_view text, size_t at) {
  return at >= 2 && (text[at - 1] == 'e' || text[at - 1] == 'E') &&
         (std::isdigit(static_cast<unsigned char>(text[at - 2])) != 0 || text[at - 2] == '.') &&
         (at < 3 || std::isalpha(static_cast<unsigned char>(text[at - 3])) == 0);
}

constexpr std::string_view kNoLabels = "none";

}  // namespace

Loss::Loss(const std::string& text) {
  std::string_view term = text;
  weight_ = cut_weight(term);
  Spec spec(term, "loss", true);
  name_ = spec.name();
  tensor_ = spec.tensor();
  if (name_ == "cross-entropy") {
    smoothing_ = spec.number("label_smoothing", 0);
    if (smoothing_ < 0 || smoothing_ > 1) fail("loss", "label_smoothing is {}; it must be from 0 to 1", smoothing_);
  } else if (name_ == "mse") {
    kind_ = Kind::squared_error;
  } else if (name_ == "bce") {
    kind_ = Kind::binary;
  } else if (name_ == "bce-with-logits") {
    kind_ = Kind::binary_with_logits;
  } else if (name_ == "z-loss") {
    kind_ = Kind::z;
  } else if (name_ == "output") {
    kind_ = Kind::output;
  } else if (name_ == "mean") {
    kind_ = Kind::mean;
  } else {
    fail("loss", "there is no loss '{}'; name cross-entropy, mse, bce, bce-with-logits, z-loss, output or mean", name_);
  }
  if (kind_ == Kind::cross_entropy || kind_ == Kind::z)
    ignored_ = static_cast<int64_t>(spec.number("ignore_index", -100));
  if (kind_ != Kind::output && kind_ != Kind::mean) labels_ = spec.word("labels", "");
  if (labels_ == kNoLabels && kind_ != Kind::z) fail("loss", "{} compares the output with labels; name them", name_);
  spec.finish();
}

bool Loss::takes_labels() const {
  return kind_ != Kind::output && kind_ != Kind::mean && labels_ != kNoLabels;
}

TensorType Loss::labels_type(const Value& output) const {
  Shape shape = output.shape();
  if (!is_float(output.dtype()))
    fail("loss", "the output '{}' is {}; a loss takes floats", output.name, name_of(output.dtype()));
  if (kind_ != Kind::cross_entropy && kind_ != Kind::z)
    return {bits_of(output.dtype()) < 32 ? DType::float32 : output.dtype(), shape};
  if (shape.size() < 2)
    fail("loss", "the output '{}' is {}; {} takes logits [..., classes] with at least two dimensions", output.name,
         to_string(shape), name_);
  shape.pop_back();
  return {DType::int64, shape};
}

Value* Loss::sum(NodeBuilder& build, Value* output, Value* labels) const {
  Value* x = wide(build, output);
  if (!is_float(x->dtype()))
    fail("loss", "the output '{}' is {}; a loss takes floats", output->name, name_of(output->dtype()));
  const bool by_element = kind_ == Kind::squared_error || kind_ == Kind::binary_with_logits || kind_ == Kind::binary;
  if (by_element && labels->shape() != x->shape())
    fail("loss",
         "the labels '{}' are {}, the output '{}' {}; {} compares element with element, so name labels of its own with "
         "labels=INPUT",
         labels->name, to_string(labels->shape()), output->name, to_string(output->shape()), name_);
  switch (kind_) {
    case Kind::output:
      if (x->rank() > 1 || (x->rank() == 1 && !x->shape()[0].is(1)))
        fail("loss", "the output '{}' is {}; as a loss it must be one number (mean takes the mean of a tensor)",
             output->name, to_string(output->shape()));
      return build.reshape(x, {});
    case Kind::mean:
      return sum_of_all(build, x);
    case Kind::squared_error: {
      Value* difference = build.sub(x, build.cast(labels, x->dtype()));
      return sum_of_all(build, build.mul(difference, difference));
    }
    case Kind::binary_with_logits: {
      // log(1 + e^x) - x·z, which is finite for every x and has the slope sigmoid(x) - z.
      Value* z = build.cast(labels, x->dtype());
      return sum_of_all(build, build.sub(build.unary("Softplus", x), build.mul(x, z)));
    }
    case Kind::binary: {
      Value* z = build.cast(labels, x->dtype());
      // The logarithm of what is no positive number is -100, and has no slope.
      const auto bounded_log = [&](Value* p) {
        Value* positive = build.greater(p, 1.2e-38);
        return build.where(positive, build.unary("Log", build.where(positive, p, 1.0)), -100.0);
      };
      Value* own = build.mul(z, bounded_log(x));
      Value* other = build.mul(build.sub(1, z), bounded_log(build.sub(1, x)));
      return build.neg(sum_of_all(build, build.add(own, other)));
    }
    case Kind::z:
      return squared_log_sums(build, x, labels);
    case Kind::cross_entropy:
      break;
  }
  return cross_entropy(build, x, labels);
}

Value* Loss::is_ignored(NodeBuilder& build, Value* wanted) const {
  return build.emit("Equal", {wanted, build.number(wanted, static_cast<double>(ignored_))});
}

Value* Loss::cross_entropy(NodeBuilder& build, Value* x, Value* labels) const {
  // Classes last, as in [batch, sequence, classes]; images have [batch, classes, ...].
  const size_t rank = x->rank();
  Shape without_last = x->shape(), without_second = x->shape();
  without_last.pop_back();
  without_second.erase(without_second.begin() + 1);
  if (labels->shape() != without_last && labels->shape() == without_second) {
    std::vector<int64_t> order = {0};
    for (size_t d = 2; d < rank; ++d) order.push_back(static_cast<int64_t>(d));
    order.push_back(1);
    x = build.transpose(x, order);
  } else if (labels->shape() != without_last) {
    fail("loss", "the labels '{}' are {}, the logits '{}' {}; cross-entropy takes one label for each row of classes",
         labels->name, to_string(labels->shape()), x->name, to_string(x->shape()));
  }
  // Ignored labels become a class that exists before anything is looked up by them.
  Value* wanted = build.cast(labels, DType::int64);
  Value* ignored = is_ignored(build, wanted);
  // Other negative labels are no classes, though indices may count from the end: they go where there is none.
  Value* class_or_none = build.where(build.less(wanted, 0), build.scalar(DType::int64, x->shape().back()), wanted);
  Value* known = build.where(ignored, build.number(wanted, 0), class_or_none);
  Value* log_probability = build.emit("LogSoftmax", {x}, {{"axis", int64_t{-1}, ""}});
  Shape column = wanted->shape();
  column.push_back(1);
  Value* own = build.emit("GatherElements", {log_probability, build.reshape(known, column)},
                          {{"axis", last_axis(log_probability), ""}});
  Value* loss = build.neg(build.reshape(own, wanted->shape()));
  if (smoothing_ > 0) {
    Value* mean = build.reshape(build.mean(log_probability, {last_axis(log_probability)}), wanted->shape());
    loss = build.sub(build.mul(loss, 1 - smoothing_), build.mul(mean, smoothing_));
  }
  return sum_of_all(build, build.where(ignored, build.number(loss, 0), loss));
}

Value* Loss::squared_log_sums(NodeBuilder& build, Value* x, Value* labels) const {
  Shape rows = x->shape();
  rows.pop_back();
  // Any number near the largest keeps the exponentials in range. A whole one has no gradient.
  const std::vector<Value*> largest_of = {x, build.graph.constant_int64({last_axis(x)})};
  Value* shift = build.unary("Ceil", build.emit("ReduceMax", largest_of, {{"keepdims", int64_t{1}, ""}}));
  Value* sums = build.sum(build.unary("Exp", build.sub(x, shift)), {last_axis(x)});
  Value* logarithm = build.reshape(build.add(build.unary("Log", sums), shift), rows);
  Value* squares = build.mul(logarithm, logarithm);
  if (!labels) return sum_of_all(build, squares);
  if (elements_of(labels->shape()) != elements_of(rows))
    fail("loss",
         "the labels '{}' are {}, the logits '{}' {}; z-loss takes one label for each row of logits, or all rows with "
         "labels=none",
         labels->name, to_string(labels->shape()), x->name, to_string(x->shape()));
  Value* ignored = is_ignored(build, build.cast(build.reshape(labels, rows), DType::int64));
  return sum_of_all(build, build.where(ignored, build.number(squares, 0), squares));
}

Value* Loss::divisor(NodeBuilder& build, const Value& output, Value* labels, int parts) const {
  const DType type = bits_of(output.dtype()) < 32 ? DType::float32 : output.dtype();
  if (kind_ == Kind::output) return build.graph.constant_scalar(type, parts);
  if (kind_ == Kind::cross_entropy || (kind_ == Kind::z && labels)) {
    Value* counted = build.emit("Not", {is_ignored(build, build.cast(labels, DType::int64))});
    Value* count = sum_of_all(build, build.cast(counted, DType::int64));
    return build.cast(build.emit("Max", {count, build.number(count, 1)}), type);
  }
  Shape shape = output.shape();
  if (kind_ == Kind::z && !shape.empty()) shape.pop_back();
  return build.scalar(type, labels ? elements_of(labels->shape()) : elements_of(shape) * parts);
}

std::vector<Loss> losses_of(const std::string& given) {
  std::string spec = given;
  std::erase(spec, ' ');
  std::vector<Loss> terms;
  size_t begin = 0;
  for (size_t at = 0; at <= spec.size(); ++at) {
    if (at < spec.size() && (spec[at] != '+' || is_of_number(spec, at))) continue;
    terms.emplace_back(spec.substr(begin, at - begin));
    begin = at + 1;
  }
  // Terms that differ by their labels alone are called by these, too.
  std::vector<size_t> by_labels;
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = 0; j < terms.size(); ++j)
      if (terms[i].label() == terms[j].label() && terms[i].labels() != terms[j].labels()) by_labels.push_back(i);
  for (size_t i : by_labels) terms[i].name_labels();
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (terms[i].label() == terms[j].label())
        fail("loss", "'{}' has two terms {}; add their weights, or let each name its own tensor ({}:TENSOR)", spec,
             terms[i].label(), terms[i].label());
  return terms;
}

}  // namespace tessera::train
