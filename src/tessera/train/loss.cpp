#include "tessera/train/loss.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/train/class_axis.h"

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

}  // namespace

Loss::Loss(const LossRule& rule) : name_(name_of(rule)) {
  static const std::map<std::string, Kind, std::less<>> kinds = {{"cross-entropy", Kind::cross_entropy},
                                                                 {"mse", Kind::squared_error},
                                                                 {"bce", Kind::binary},
                                                                 {"bce-with-logits", Kind::binary_with_logits},
                                                                 {"z-loss", Kind::z},
                                                                 {"output", Kind::output},
                                                                 {"mean", Kind::mean}};
  kind_ = kinds.at(name_);
  std::visit(
      [&](const auto& term) {
        tensor_ = term.tensor;
        labels_ = term.labels;
        weight_ = term.weight;
        if constexpr (requires { term.label_smoothing; }) smoothing_ = term.label_smoothing;
        if constexpr (requires { term.ignore_index; }) {
          ignored_ = term.ignore_index;
          axis_ = term.axis;
        }
      },
      rule);
}

bool Loss::takes_labels() const {
  return kind_ != Kind::output && kind_ != Kind::mean && labels_ != kNoLabels;
}

void Loss::find_classes(const Value& output, const Shape* labels) {
  if (!takes_classes()) return;
  const Shape& logits = output.shape();
  const auto rank = static_cast<int64_t>(logits.size());
  const int64_t first = takes_labels() ? 1 : 0;  // that can hold classes; labels are given for rows of a batch
  if (rank <= first)
    fail("loss", "the output '{}' is {}; {} takes logits with {}", output.name, to_string(logits), name_,
         first == 1 ? "at least two dimensions, as [batch, classes]" : "a dimension of classes");
  const int64_t axis = axis_.value_or(-1) < 0 ? axis_.value_or(-1) + rank : *axis_;
  if (axis < first || axis >= rank)
    fail("loss", "{}:axis={} is not a dimension of the logits '{}' {} that can hold classes; name one from {} to {}",
         name_, *axis_, output.name, to_string(logits), first, rank - 1);
  class_axis_ = static_cast<size_t>(axis);
  if (axis_ || !labels || !takes_labels()) return;
  // Labels of z-loss may have other dimensions, so long as there is one for each row.
  if (kind_ == Kind::z && labels->size() + 1 != logits.size()) return;
  const std::vector<size_t> axes = class_axes(logits, *labels);
  if (axes.empty())
    fail("loss",
         "the labels are {}, the logits '{}' {}; {} takes one label for each row of classes, so that labels have the "
         "shape of the logits without the dimension of the classes, which is not the first",
         to_string(*labels), output.name, to_string(logits), name_);
  if (axes.size() > 1)
    fail("loss",
         "the labels {} fit the logits '{}' {} if the classes are dimension {}, and if they are dimension {}; say "
         "which, as {}:axis={} (PyTorch's is 1)",
         to_string(*labels), output.name, to_string(logits), axes[0], axes[1], name_, axes[0]);
  class_axis_ = axes[0];
}

// The shape of the logits without the classes.
Shape Loss::rows_of(const Value& logits) const {
  Shape rows = logits.shape();
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(class_axis_));
  return rows;
}

TensorType Loss::labels_type(const Value& output) const {
  if (!is_float(output.dtype()))
    fail("loss", "the output '{}' is {}; a loss takes floats", output.name, name_of(output.dtype()));
  if (takes_classes()) return {DType::int64, rows_of(output)};
  return {bits_of(output.dtype()) < 32 ? DType::float32 : output.dtype(), output.shape()};
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
      // The logarithm of a number that is not positive is -100, and has no slope.
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
  const auto axis = static_cast<int64_t>(class_axis_);
  if (labels->shape() != rows_of(*x))
    fail("loss",
         "the labels '{}' are {}, the logits '{}' {}; cross-entropy takes one label for each row of classes, which are "
         "dimension {} of the logits",
         labels->name, to_string(labels->shape()), x->name, to_string(x->shape()), axis);
  // Ignored labels become a class that exists before anything is looked up by them.
  Value* wanted = build.cast(labels, DType::int64);
  Value* ignored = is_ignored(build, wanted);
  // Other negative labels are no classes, though indices may count from the end: they go where there is none.
  Value* class_or_none =
      build.where(build.less(wanted, 0), build.scalar(DType::int64, x->shape()[class_axis_]), wanted);
  Value* known = build.where(ignored, build.number(wanted, 0), class_or_none);
  Value* log_probability = build.emit("LogSoftmax", {x}, {{"axis", axis, ""}});
  Shape column = wanted->shape();
  column.insert(column.begin() + axis, 1);
  Value* own = build.emit("GatherElements", {log_probability, build.reshape(known, column)}, {{"axis", axis, ""}});
  Value* loss = build.neg(build.reshape(own, wanted->shape()));
  if (smoothing_ > 0) {
    Value* mean = build.reshape(build.mean(log_probability, {axis}), wanted->shape());
    loss = build.sub(build.mul(loss, 1 - smoothing_), build.mul(mean, smoothing_));
  }
  return sum_of_all(build, build.where(ignored, build.number(loss, 0), loss));
}

Value* Loss::squared_log_sums(NodeBuilder& build, Value* x, Value* labels) const {
  const Shape rows = rows_of(*x);
  const auto axis = static_cast<int64_t>(class_axis_);
  // Any number near the largest keeps the exponentials in range. A whole one has no gradient.
  const std::vector<Value*> largest_of = {x, build.graph.constant_int64({axis})};
  Value* shift = build.unary("Ceil", build.emit("ReduceMax", largest_of, {{"keepdims", int64_t{1}, ""}}));
  Value* sums = build.sum(build.unary("Exp", build.sub(x, shift)), {axis});
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
  if (takes_classes() && labels) {
    Value* counted = build.emit("Not", {is_ignored(build, build.cast(labels, DType::int64))});
    Value* count = sum_of_all(build, build.cast(counted, DType::int64));
    return build.cast(build.emit("Max", {count, build.number(count, 1)}), type);
  }
  const Shape counted = takes_classes() ? rows_of(output) : output.shape();
  return build.scalar(type, labels ? elements_of(labels->shape()) : elements_of(counted) * parts);
}

std::vector<Loss> losses_of(const tessera::Loss& loss) {
  std::vector<Loss> terms;
  for (const LossRule& term : value_of(loss).terms) terms.emplace_back(term);
  // Terms that differ by their labels alone are called by these, too.
  std::vector<size_t> by_labels;
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = 0; j < terms.size(); ++j)
      if (terms[i].label() == terms[j].label() && terms[i].labels() != terms[j].labels()) by_labels.push_back(i);
  for (size_t i : by_labels) terms[i].name_labels();
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (terms[i].label() == terms[j].label())
        fail("loss", "the loss has two terms {}; add their weights, or let each name its own tensor ({}:TENSOR)",
             terms[i].label(), terms[i].label());
  return terms;
}

}  // namespace tessera::train
