#include "tessera/train/loss.h"

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

}  // namespace

Loss::Loss(const std::string& text) {
  Spec spec(text, "loss");
  if (spec.name() == "cross-entropy") {
    smoothing_ = spec.number("label_smoothing", 0);
    ignored_ = static_cast<int64_t>(spec.number("ignore_index", -100));
    if (smoothing_ < 0 || smoothing_ > 1) fail("loss", "label_smoothing is {}; it must be from 0 to 1", smoothing_);
  } else if (spec.name() == "mse") {
    kind_ = Kind::squared_error;
  } else if (spec.name() == "bce") {
    kind_ = Kind::binary;
  } else if (spec.name() == "bce-with-logits") {
    kind_ = Kind::binary_with_logits;
  } else if (spec.name() == "output") {
    kind_ = Kind::output;
  } else {
    fail("loss", "there is no loss '{}'; name cross-entropy, mse, bce, bce-with-logits or output", spec.name());
  }
  spec.finish();
}

TensorType Loss::labels_type(const Value& output) const {
  Shape shape = output.shape();
  if (!is_float(output.dtype()))
    fail("loss", "the output '{}' is {}; a loss takes floats", output.name, name_of(output.dtype()));
  if (kind_ != Kind::cross_entropy) return {bits_of(output.dtype()) < 32 ? DType::float32 : output.dtype(), shape};
  if (shape.size() < 2)
    fail("loss", "the output '{}' is {}; cross-entropy takes logits [..., classes] with at least two dimensions",
         output.name, to_string(shape));
  shape.pop_back();
  return {DType::int64, shape};
}

Value* Loss::sum(NodeBuilder& build, Value* output, Value* labels) const {
  Value* x = wide(build, output);
  switch (kind_) {
    case Kind::output:
      if (x->rank() > 1 || (x->rank() == 1 && !x->shape()[0].is(1)))
        fail("loss", "the output '{}' is {}; as a loss it must be one number", output->name,
             to_string(output->shape()));
      return build.reshape(x, {});
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
    case Kind::cross_entropy:
      break;
  }
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
         labels->name, to_string(labels->shape()), output->name, to_string(output->shape()));
  }
  // Ignored labels become a class that exists before anything is looked up by them.
  Value* wanted = build.cast(labels, DType::int64);
  Value* ignored = build.emit("Equal", {wanted, build.number(wanted, static_cast<double>(ignored_))});
  // Other negative labels are no classes, though indices may count from the end: they go where there is none.
  Value* class_or_none = build.where(build.less(wanted, 0), build.scalar(DType::int64, x->shape().back()), wanted);
  Value* known = build.where(ignored, build.number(wanted, 0), class_or_none);
  Value* log_probability = build.emit("LogSoftmax", {x}, {{"axis", int64_t{-1}, ""}});
  Shape column = wanted->shape();
  column.push_back(1);
  Value* own = build.emit("GatherElements", {log_probability, build.reshape(known, column)},
                          {{"axis", static_cast<int64_t>(rank) - 1, ""}});
  Value* loss = build.neg(build.reshape(own, wanted->shape()));
  if (smoothing_ > 0) {
    Value* mean = build.reshape(build.mean(log_probability, {static_cast<int64_t>(rank) - 1}), wanted->shape());
    loss = build.sub(build.mul(loss, 1 - smoothing_), build.mul(mean, smoothing_));
  }
  return sum_of_all(build, build.where(ignored, build.number(loss, 0), loss));
}

Value* Loss::divisor(NodeBuilder& build, const Value& output, Value* labels, int parts) const {
  const DType type = bits_of(output.dtype()) < 32 ? DType::float32 : output.dtype();
  if (kind_ == Kind::output) return build.graph.constant_scalar(type, parts);
  if (kind_ != Kind::cross_entropy) {
    Expr count = 1;
    for (const Expr& extent : labels->shape()) count = count * extent;
    return build.scalar(type, count);
  }
  Value* wanted = build.cast(labels, DType::int64);
  Value* counted =
      build.emit("Not", {build.emit("Equal", {wanted, build.number(wanted, static_cast<double>(ignored_))})});
  Value* count = sum_of_all(build, build.cast(counted, DType::int64));
  return build.cast(build.emit("Max", {count, build.number(count, 1)}), type);
}

}  // namespace tessera::train
