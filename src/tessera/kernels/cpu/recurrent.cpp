#include <array>
#include <cmath>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/dispatch.h"
#include "tessera/kernels/cpu/matrix_product.h"
#include "tessera/kernels/cpu/require.h"
#include "tessera/kernels/cpu/scratch.h"
#include "tessera/kernels/cpu/vector_math.h"
#include "tessera/kernels/cpu/via_float32.h"
#include "tessera/kernels/cpu/weight_layout.h"
#include "tessera/kernels/registry.h"

// Per direction: one product for all times, x·Wᵀ; then per step the state's product h·Rᵀ and the gates, following
// ONNX's equations of RNN, GRU and LSTM. A sequence that has ended keeps its state and gives zeros.
namespace tessera::kernels {
namespace {

enum class Kind { rnn, gru, lstm };
enum class Activation { sigmoid, tanh, relu };

Activation activation_named(const std::string& name) {
  return name == "Sigmoid" ? Activation::sigmoid : name == "Tanh" ? Activation::tanh : Activation::relu;
}

struct Recurrence {
  Kind kind = Kind::rnn;
  int64_t t = 0, n = 0, i = 0, h = 0, directions = 1, gates = 1;
  bool batch_first = false, reset_after = false, coupled = false;  ///< linear_before_reset, input_forget
  std::vector<bool> backwards;                                     ///< per direction
  std::vector<Activation> activations;                             ///< per direction three (LSTM), two or one
  double clip = INFINITY;
  bool with_bias = false, with_lengths = false, with_hidden = false, with_cell = false, with_peepholes = false;
  bool with_all = false, with_last = false, with_last_cell = false;  ///< results

  int64_t width() const { return gates * h; }
  int64_t state_at(int64_t direction, int64_t row) const {
    return (batch_first ? row * directions + direction : direction * n + row) * h;
  }
  int64_t result_at(int64_t time, int64_t direction, int64_t row) const {
    return (batch_first ? (row * t + time) * directions + direction : (time * directions + direction) * n + row) * h;
  }
  int64_t input_row(int64_t time, int64_t row) const { return batch_first ? row * t + time : time * n + row; }
};

template <typename T>
T activate(Activation activation, T x) {
  switch (activation) {
    case Activation::sigmoid:
      return vector_math::sigmoid(x);
    case Activation::tanh:
      return vector_math::tanh(x);
    default:
      return std::max(x, T(0));
  }
}

/// Elements [0, count), clipped before.
template <typename T>
void activate_all(Activation activation, double clip, T* x, int64_t count) {
  if (const T most = static_cast<T>(clip); std::isfinite(clip))
    for (int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -most, most);
  switch (activation) {
    case Activation::sigmoid:
      for (int64_t i = 0; i < count; ++i) x[i] = vector_math::sigmoid(x[i]);
      break;
    case Activation::tanh:
      for (int64_t i = 0; i < count; ++i) x[i] = vector_math::tanh(x[i]);
      break;
    default:
      for (int64_t i = 0; i < count; ++i) x[i] = std::max(x[i], T(0));
  }
}

template <typename T>
class Runner {
 public:
  Runner(const Recurrence& r, const KernelArgs& args, T* projected, T* recurred, T* hidden, T* cell)
      : r_(r), args_(args), projected_(projected), recurred_(recurred), hidden_(hidden), cell_(cell) {}

  void load_states(int64_t direction) {
    for (int64_t row = 0; row < r_.n; ++row) {
      load_state(r_.with_hidden ? args_.in<T>(5) : nullptr, direction, row, hidden_);
      if (r_.kind == Kind::lstm) load_state(r_.with_cell ? args_.in<T>(6) : nullptr, direction, row, cell_);
    }
  }

  /// Steps the rows that have not ended; `recurred` holds h·Rᵀ.
  void step(int64_t direction, int64_t step) {
    for (int64_t row = 0; row < r_.n; ++row) {
      const int64_t length = length_of(row);
      const bool ended = step >= length;
      if (!ended) {
        const T* x = projected_ + r_.input_row(r_.backwards[direction] ? length - 1 - step : step, row) * r_.width();
        T* recurred = recurred_ + row * r_.width();
        r_.kind == Kind::lstm ? advance_lstm(direction, row, x, recurred) : advance(direction, row, x, recurred);
      }
      if (!r_.with_all) continue;
      const int64_t time = ended || !r_.backwards[direction] ? step : length - 1 - step;
      T* out = args_.out<T>(0) + r_.result_at(time, direction, row);
      for (int64_t j = 0; j < r_.h; ++j) out[j] = ended ? T(0) : hidden_[row * r_.h + j];
    }
  }

  /// For a GRU that resets before its last product: held = r ⊙ h, the operand of that product.
  void reset(int64_t direction, int64_t step, T* held) {
    for (int64_t row = 0; row < r_.n; ++row) {
      const int64_t length = length_of(row), at = r_.backwards[direction] ? length - 1 - step : step;
      for (int64_t j = 0; j < r_.h; ++j) {
        T gate = 0;
        if (step < length) {
          const T* x = projected_ + r_.input_row(at, row) * r_.width();
          gate = activated(direction, 0, x[r_.h + j] + recurred_[row * r_.width() + r_.h + j] + bias(direction, 1, j));
        }
        held[row * r_.h + j] = gate * hidden_[row * r_.h + j];
      }
    }
  }

  void store_states(int64_t direction) {
    for (int64_t row = 0; row < r_.n; ++row) {
      const int64_t to = r_.state_at(direction, row);
      if (r_.with_last) std::copy_n(hidden_ + row * r_.h, r_.h, args_.out<T>(1) + to);
      if (r_.with_last_cell) std::copy_n(cell_ + row * r_.h, r_.h, args_.out<T>(2) + to);
    }
  }

 private:
  void load_state(const T* from, int64_t direction, int64_t row, T* to) const {
    for (int64_t j = 0; j < r_.h; ++j) to[row * r_.h + j] = from ? from[r_.state_at(direction, row) + j] : T(0);
  }

  int64_t length_of(int64_t row) const {
    if (!r_.with_lengths) return r_.t;
    const int64_t given = args_.in<int32_t>(4)[row];
    return std::clamp<int64_t>(given, 0, r_.t);
  }

  /// A gate's bias: that of its input and of its state together or (part 0, 1) one of them.
  T bias(int64_t direction, int64_t gate, int64_t j, int part = -1) const {
    if (!r_.with_bias) return 0;
    const T* of_input = args_.in<T>(3) + direction * 2 * r_.width() + gate * r_.h + j;
    return (part == 1 ? T(0) : of_input[0]) + (part == 0 ? T(0) : of_input[r_.width()]);
  }

  T activated(int64_t direction, size_t which, T x) const {
    const size_t each = r_.kind == Kind::lstm ? 3 : r_.kind == Kind::gru ? 2 : 1;
    const T clip = static_cast<T>(r_.clip);
    return activate(r_.activations[static_cast<size_t>(direction) * each + which], std::clamp(x, -clip, clip));
  }

  /// The gates are computed in place of `recurred`.
  void advance_lstm(int64_t direction, int64_t row, const T* x, T* recurred) {
    const int64_t h = r_.h;
    T *hidden = hidden_ + row * h, *cell = cell_ + row * h;
    T *input = recurred, *output = recurred + h, *forget = recurred + 2 * h, *inner = recurred + 3 * h;
    for (int64_t i = 0; i < r_.width(); ++i) recurred[i] += x[i];
    if (r_.with_bias) {
      const T *of_input = args_.in<T>(3) + direction * 2 * r_.width(), *of_state = of_input + r_.width();
      for (int64_t i = 0; i < r_.width(); ++i) recurred[i] += of_input[i] + of_state[i];
    }
    const T* peepholes = r_.with_peepholes ? args_.in<T>(7) + direction * 3 * h : nullptr;
    const auto peek = [&](T* gate, int64_t which) {
      for (int64_t j = 0; peepholes && j < h; ++j) gate[j] += peepholes[which * h + j] * cell[j];
    };
    const Activation* of_direction = r_.activations.data() + direction * 3;
    peek(input, 0);
    activate_all(of_direction[0], r_.clip, input, h);
    if (r_.coupled) {
      for (int64_t j = 0; j < h; ++j) forget[j] = 1 - input[j];
    } else {
      peek(forget, 2);
      activate_all(of_direction[0], r_.clip, forget, h);
    }
    activate_all(of_direction[1], r_.clip, inner, h);
    for (int64_t j = 0; j < h; ++j) cell[j] = forget[j] * cell[j] + input[j] * inner[j];
    peek(output, 1);
    activate_all(of_direction[0], r_.clip, output, h);
    std::copy_n(cell, h, hidden);
    activate_all<T>(of_direction[2], INFINITY, hidden, h);  // the cell itself is not clipped
    for (int64_t j = 0; j < h; ++j) hidden[j] *= output[j];
  }

  void advance(int64_t direction, int64_t row, const T* x, const T* recurred) {
    T* hidden = hidden_ + row * r_.h;
    const int64_t h = r_.h;
    auto sum = [&](int64_t gate, int64_t j) {
      return x[gate * h + j] + recurred[gate * h + j] + bias(direction, gate, j);
    };
    for (int64_t j = 0; j < h; ++j) {
      if (r_.kind == Kind::rnn) {
        hidden[j] = activated(direction, 0, sum(0, j));
      } else {
        const T update = activated(direction, 0, sum(0, j));
        T inner;
        if (r_.reset_after) {
          const T reset = activated(direction, 0, sum(1, j));
          inner = x[2 * h + j] + bias(direction, 2, j, 0) + reset * (recurred[2 * h + j] + bias(direction, 2, j, 1));
        } else {
          inner = sum(2, j);
        }
        hidden[j] = (1 - update) * activated(direction, 1, inner) + update * hidden[j];
      }
    }
  }

  const Recurrence& r_;
  const KernelArgs& args_;
  T *projected_, *recurred_, *hidden_, *cell_;
};

Recurrence recurrence_of(const PrepareContext& context) {
  const Node& node = context.node;
  Recurrence r;
  r.kind = node.op_type == "LSTM" ? Kind::lstm : node.op_type == "GRU" ? Kind::gru : Kind::rnn;
  r.gates = r.kind == Kind::lstm ? 4 : r.kind == Kind::gru ? 3 : 1;
  const Dims &x = context.inputs.at(0).dims, &weights = context.inputs.at(1).dims, &turn = context.inputs.at(2).dims;
  r.batch_first = node.get_int("layout", 0) != 0;
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    fail("kernel", "{}: direction '{}' is none of forward, reverse, bidirectional", node.label(), direction);
  r.backwards = {direction == "reverse"};
  if (direction == "bidirectional") r.backwards.push_back(true);
  r.directions = static_cast<int64_t>(r.backwards.size());
  if (x.size() != 3 || weights.size() != 3 || turn.size() != 3 || weights[0] != r.directions ||
      turn[0] != r.directions || weights[1] != r.gates * turn[2] || turn[1] != weights[1] || weights[2] != x[2])
    fail("kernel", "{}: the sequence, the weights and the recurrence do not fit together", node.label());
  r.t = x[r.batch_first ? 1 : 0];
  r.n = x[r.batch_first ? 0 : 1];
  r.i = x[2];
  r.h = turn[2];
  r.reset_after = node.get_int("linear_before_reset", 0) != 0;
  r.coupled = node.get_int("input_forget", 0) != 0;
  if (const float* clip = node.get<float>("clip")) r.clip = *clip;
  std::vector<std::string> usual{"Tanh"};
  if (r.kind == Kind::gru) usual = {"Sigmoid", "Tanh"};
  if (r.kind == Kind::lstm) usual = {"Sigmoid", "Tanh", "Tanh"};
  const auto* named = node.get<std::vector<std::string>>("activations");
  const bool is_usual = !named || named->empty();
  for (int64_t d = 0; d < (is_usual ? r.directions : 1); ++d)
    for (const std::string& name : is_usual ? usual : *named) r.activations.push_back(activation_named(name));
  r.with_bias = context.has_input(3);
  r.with_lengths = context.has_input(4);
  r.with_hidden = context.has_input(5);
  r.with_cell = context.has_input(6);
  r.with_peepholes = context.has_input(7);
  const Dims states = r.batch_first ? Dims{r.n, r.directions, r.h} : Dims{r.directions, r.n, r.h};
  require_dims(context, 3, "the bias", {r.directions, 2 * r.width()});
  require_dims(context, 4, "sequence_lens", {r.n});
  require_dims(context, 5, "initial_h", states);
  require_dims(context, 6, "initial_c", states);
  require_dims(context, 7, "the peepholes", {r.directions, 3 * r.h});
  if (r.with_lengths && context.inputs[4].dtype != DType::int32)
    fail("kernel", "{}: sequence_lens is {}; it must be int32", node.label(), name_of(context.inputs[4].dtype));
  r.with_all = context.has_output(0);
  r.with_last = context.has_output(1);
  r.with_last_cell = context.has_output(2);
  return r;
}

/// [m, k] · [n, k]ᵀ
template <typename T>
std::shared_ptr<MatrixProduct> turned_product(int64_t m, int64_t n, int64_t k, const PrepareContext& context,
                                              std::optional<WeightLayout> weight = std::nullopt) {
  ProductSpec spec;
  spec.shape = gemm_shape(View::dense({m, k}), View::dense({n, k}), false, true, context.node.label());
  spec.operands = spec.result = dtype_of<T>();
  spec.weight = std::move(weight);
  spec.threads = context.threads;
  spec.label = context.node.label();
  return make_product(spec);
}

/// The state's product by [n, k]ᵀ at every step. If there are several, the matrix is packed before them, in each run:
/// it may be an operand that changes.
template <typename T>
class StepProduct {
 public:
  StepProduct(int64_t m, int64_t n, int64_t k, int64_t steps, const PrepareContext& context) {
    constexpr int64_t kFew = 4;
    if (steps >= kFew && m * n * k > 0) weight_ = matmul_weight_layout(dtype_of<T>(), {n, k}, true);
    if (weight_) pack_ = onednn::reorder(weight_->plain, weight_->packed, context.threads);
    if (!pack_) weight_.reset();
    product_ = turned_product<T>(m, n, k, context, weight_);
    packed_at_ = plan_.add(weight_ ? weight_->bytes() : 0);
    inner_at_ = plan_.add(std::max(product_->scratch_bytes(), pack_ ? pack_->scratch_bytes() : size_t{0}));
  }
  size_t scratch_bytes() const { return plan_.bytes(); }

  /// What run() takes for the matrix.
  const void* prepared(const T* matrix, void* scratch) const {
    if (!pack_) return matrix;
    void* packed = scratch_at(scratch, packed_at_);
    pack_->run(std::array<const void*, 2>{matrix, packed}, scratch_at(scratch, inner_at_));
    return packed;
  }
  void run(const T* state, const void* prepared, T* result, void* scratch) const {
    product_->run(state, prepared, nullptr, result, scratch_at(scratch, inner_at_));
  }

 private:
  std::optional<WeightLayout> weight_;
  std::shared_ptr<onednn::Primitive> pack_;
  std::shared_ptr<MatrixProduct> product_;
  ScratchPlan plan_;
  size_t packed_at_ = 0, inner_at_ = 0;
};

template <typename T>
std::unique_ptr<Kernel> prepare(const Recurrence& r, const PrepareContext& context) {
  // A GRU that resets its state before the product has a product of its own for the last gate.
  const bool resets_before = r.kind == Kind::gru && !r.reset_after;
  const int64_t first_gates = resets_before ? 2 : r.gates;
  auto input = turned_product<T>(r.t * r.n, r.width(), r.i, context);
  const StepProduct<T> recurrent(r.n, first_gates * r.h, r.h, r.t, context);
  std::optional<StepProduct<T>> last;
  if (resets_before) last.emplace(r.n, r.h, r.h, r.t, context);
  ScratchPlan plan;
  const std::string what = context.node.label();
  const size_t projected_at = plan.add(checked_bytes({sizeof(T), r.t, r.n, r.width()}, what));
  const size_t recurred_at = plan.add(checked_bytes({sizeof(T), r.n, r.width()}, what));
  const size_t product_at = plan.add(checked_bytes({sizeof(T), r.n, r.width()}, what));
  const size_t hidden_at = plan.add(checked_bytes({sizeof(T), r.n, r.h}, what));
  const size_t cell_at = plan.add(checked_bytes({sizeof(T), r.n, r.h}, what));
  const size_t held_at = plan.add(checked_bytes({sizeof(T), r.n, r.h}, what));
  const size_t inner_at = plan.add(input->scratch_bytes());
  const size_t recurrent_at = plan.add(recurrent.scratch_bytes());
  const size_t last_at = plan.add(last ? last->scratch_bytes() : 0);
  return make_kernel(
      [=](const KernelArgs& args) {
        T* projected = scratch_at<T>(args.scratch, projected_at);
        T* recurred = scratch_at<T>(args.scratch, recurred_at);
        T* product = scratch_at<T>(args.scratch, product_at);
        T* hidden = scratch_at<T>(args.scratch, hidden_at);
        T* held = scratch_at<T>(args.scratch, held_at);
        void *in_recurrent = scratch_at(args.scratch, recurrent_at), *in_last = scratch_at(args.scratch, last_at);
        Runner<T> runner(r, args, projected, recurred, hidden, scratch_at<T>(args.scratch, cell_at));
        for (int64_t d = 0; d < r.directions; ++d) {
          const T* turn = args.in<T>(2) + d * r.width() * r.h;
          input->run(args.in<T>(0), args.in<T>(1) + d * r.width() * r.i, nullptr, projected,
                     scratch_at(args.scratch, inner_at));
          const void* of_state = recurrent.prepared(turn, in_recurrent);
          const void* of_reset = last ? last->prepared(turn + 2 * r.h * r.h, in_last) : nullptr;
          runner.load_states(d);
          // Places the columns of a product [n, gates·h] from `gate` on.
          auto place = [&](int64_t gate, int64_t gates) {
            for (int64_t row = 0; row < r.n; ++row)
              std::copy_n(product + row * gates * r.h, gates * r.h, recurred + row * r.width() + gate * r.h);
          };
          for (int64_t step = 0; step < r.t; ++step) {
            recurrent.run(hidden, of_state, product, in_recurrent);
            place(0, first_gates);
            if (last) {
              runner.reset(d, step, held);
              last->run(held, of_reset, product, in_last);
              place(2, 1);
            }
            runner.step(d, step);
          }
          runner.store_states(d);
        }
      },
      plan.bytes());
}

std::unique_ptr<Kernel> prepare_recurrent(const PrepareContext& context) {
  const DType dtype = context.inputs.at(0).dtype;
  const Recurrence r = recurrence_of(context);
  if (r.n == 0) return make_kernel([](const KernelArgs&) {});
  if (dtype == DType::bfloat16 || dtype == DType::float16) return via_float32(context, prepare_recurrent);
  return dispatch(Types<float, double>(), context.node, dtype, [&]<typename T>() { return prepare<T>(r, context); });
}

}  // namespace

std::vector<KernelEntry> recurrent_kernels() {
  return {{"RNN", "", prepare_recurrent, {}}, {"GRU", "", prepare_recurrent, {}}, {"LSTM", "", prepare_recurrent, {}}};
}

}  // namespace tessera::kernels
