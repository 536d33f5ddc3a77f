#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matrix_product.h"
#include "tessera/kernels/cpu/recurrent/recurrence_form.h"
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
  /// Whether a GRU resets its state before the last gate's product, which then follows those of the first gates.
  bool resets_before() const { return kind == Kind::gru && !reset_after; }
  int64_t first_gates() const { return resets_before() ? 2 : gates; }
  int64_t activations_each() const { return kind == Kind::lstm ? 3 : kind == Kind::gru ? 2 : 1; }
  int64_t state_at(int64_t direction, int64_t row) const {
    return (batch_first ? row * directions + direction : direction * n + row) * h;
  }
  int64_t result_at(int64_t time, int64_t direction, int64_t row) const {
    return (batch_first ? (row * t + time) * directions + direction : (time * directions + direction) * n + row) * h;
  }
  int64_t input_row(int64_t time, int64_t row) const { return batch_first ? row * t + time : time * n + row; }
};

/// Elements [0, count), clipped before.
template <typename T>
void activate_all(Activation activation, double clip, T* x, int64_t count) {
  if (const T most = static_cast<T>(clip); std::isfinite(clip))
    for (int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -most, most);
  switch (activation) {
    case Activation::sigmoid:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) x[i] = vector_math::sigmoid(x[i]);
      break;
    case Activation::tanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) x[i] = vector_math::tanh(x[i]);
      break;
    default:
      for (int64_t i = 0; i < count; ++i) x[i] = std::max(x[i], T(0));
  }
}

/// One sequence at one step, in one direction. Lists of gates have `h` elements for each.
template <typename T>
struct Place {
  int64_t h = 0;
  const Activation* activations = nullptr;
  double clip = INFINITY;
  const T* x = nullptr;  ///< the input's products
  T* gates = nullptr;    ///< the state's products, in place of which the gates are computed
  T* last = nullptr;     ///< of a GRU: the state's products of the last gate, which may lie apart from the others
  const T* bias = nullptr;
  const T* last_bias = nullptr;  ///< of a GRU that resets the last gate's products: their bias; null: none
  const T* peepholes = nullptr;  ///< of input, output and forgetting; null: none
  T *hidden = nullptr, *cell = nullptr;
};

template <typename T>
void add_inputs(const Place<T>& at, int64_t first, int64_t count) {
  T* gates = at.gates;
#pragma omp simd
  for (int64_t i = first; i < first + count; ++i) gates[i] += at.x[i] + at.bias[i];
}

template <typename T>
TESSERA_MULTIVERSION static void advance_rnn(const Place<T>& at) {
  add_inputs(at, 0, at.h);
  activate_all(at.activations[0], at.clip, at.gates, at.h);
  std::copy_n(at.gates, at.h, at.hidden);
}

/// The gates that update and reset.
template <typename T>
TESSERA_MULTIVERSION static void open_gru(const Place<T>& at) {
  add_inputs(at, 0, 2 * at.h);
  activate_all(at.activations[0], at.clip, at.gates, 2 * at.h);
}

/// Follows open_gru().
template <typename T>
TESSERA_MULTIVERSION static void advance_gru(const Place<T>& at, bool reset_after) {
  const int64_t h = at.h;
  const T *update = at.gates, *reset = at.gates + h, *x = at.x + 2 * h, *bias = at.bias + 2 * h;
  T *last = at.last, *hidden = at.hidden;
  if (reset_after && at.last_bias)
    for (int64_t j = 0; j < h; ++j) last[j] += at.last_bias[j];
  if (reset_after)
    for (int64_t j = 0; j < h; ++j) last[j] *= reset[j];
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) last[j] += x[j] + bias[j];
  activate_all(at.activations[1], at.clip, last, h);
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) hidden[j] = (1 - update[j]) * last[j] + update[j] * hidden[j];
}

template <typename T>
TESSERA_MULTIVERSION static void advance_lstm(const Place<T>& at, bool coupled) {
  const int64_t h = at.h;
  T *input = at.gates, *output = input + h, *forget = input + 2 * h, *inner = input + 3 * h;
  T *hidden = at.hidden, *cell = at.cell;
  const auto peek = [&](T* gate, int64_t which) {
    for (int64_t j = 0; at.peepholes && j < h; ++j) gate[j] += at.peepholes[which * h + j] * cell[j];
  };
  add_inputs(at, 0, 4 * h);
  peek(input, 0);
  activate_all(at.activations[0], at.clip, input, h);
  if (coupled) {
    for (int64_t j = 0; j < h; ++j) forget[j] = 1 - input[j];
  } else {
    peek(forget, 2);
    activate_all(at.activations[0], at.clip, forget, h);
  }
  activate_all(at.activations[1], at.clip, inner, h);
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) cell[j] = forget[j] * cell[j] + input[j] * inner[j];
  peek(output, 1);
  activate_all(at.activations[0], at.clip, output, h);
  std::copy_n(cell, h, hidden);
  activate_all<T>(at.activations[2], INFINITY, hidden, h);  // the cell itself is not clipped
#pragma omp simd
  for (int64_t j = 0; j < h; ++j) hidden[j] *= output[j];
}

/// Buffers of one direction.
template <typename T>
struct Buffers {
  T* projected = nullptr;                ///< the input's products [t·n, gates·h]
  T* gates = nullptr;                    ///< the state's products at a step [n, first_gates·h]
  T* last = nullptr;                     ///< of a GRU that resets before its last product: its results [n, h]
  T* held = nullptr;                     ///< and its operand [n, h]
  T* bias = nullptr;                     ///< [gates·h]: of input and state together
  T *hidden = nullptr, *cell = nullptr;  ///< [n, h]
};

template <typename T>
class Runner {
 public:
  Runner(const Recurrence& r, const KernelArgs& args, const Buffers<T>& buffers)
      : r_(r), args_(args), buffers_(buffers) {}

  void begin(int64_t direction) {
    for (int64_t row = 0; row < r_.n; ++row) {
      load_state(r_.with_hidden ? args_.in<T>(5) : nullptr, direction, row, buffers_.hidden);
      if (r_.kind == Kind::lstm) load_state(r_.with_cell ? args_.in<T>(6) : nullptr, direction, row, buffers_.cell);
    }
    const T* biases = biases_of(direction);
    for (int64_t i = 0; i < r_.width(); ++i) {
      const bool apart = r_.reset_after && i >= 2 * r_.h;
      buffers_.bias[i] = biases ? biases[i] + (apart ? T(0) : biases[r_.width() + i]) : T(0);
    }
  }

  /// For a GRU that resets before its last product: held = r ⊙ h, the operand of that product.
  void reset(int64_t direction, int64_t step) {
    for (int64_t row = 0; row < r_.n; ++row) {
      T *held = buffers_.held + row * r_.h, *hidden = buffers_.hidden + row * r_.h;
      if (step >= length_of(row)) {
        std::fill_n(held, r_.h, T(0));
        continue;
      }
      const Place<T> at = place(direction, step, row);
      open_gru(at);
      for (int64_t j = 0; j < r_.h; ++j) held[j] = at.gates[r_.h + j] * hidden[j];
    }
  }

  /// Steps the sequences that have not ended, once the state's products are there.
  void step(int64_t direction, int64_t step) {
    for (int64_t row = 0; row < r_.n; ++row) {
      const int64_t length = length_of(row);
      const bool ended = step >= length;
      if (!ended) advance(place(direction, step, row));
      if (!r_.with_all) continue;
      const int64_t time = ended || !r_.backwards[direction] ? step : length - 1 - step;
      T* out = args_.out<T>(0) + r_.result_at(time, direction, row);
      if (ended)
        std::fill_n(out, r_.h, T(0));
      else
        std::copy_n(buffers_.hidden + row * r_.h, r_.h, out);
    }
  }

  void store_states(int64_t direction) {
    for (int64_t row = 0; row < r_.n; ++row) {
      const int64_t to = r_.state_at(direction, row);
      if (r_.with_last) std::copy_n(buffers_.hidden + row * r_.h, r_.h, args_.out<T>(1) + to);
      if (r_.with_last_cell) std::copy_n(buffers_.cell + row * r_.h, r_.h, args_.out<T>(2) + to);
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

  /// Those of the input, then those of the state; null without.
  const T* biases_of(int64_t direction) const {
    return r_.with_bias ? args_.in<T>(3) + direction * 2 * r_.width() : nullptr;
  }

  Place<T> place(int64_t direction, int64_t step, int64_t row) const {
    const int64_t h = r_.h, time = r_.backwards[direction] ? length_of(row) - 1 - step : step;
    const T* biases = biases_of(direction);
    Place<T> at;
    at.h = h;
    at.activations = r_.activations.data() + direction * r_.activations_each();
    at.clip = r_.clip;
    at.x = buffers_.projected + r_.input_row(time, row) * r_.width();
    at.gates = buffers_.gates + row * r_.first_gates() * h;
    at.last = r_.resets_before() ? buffers_.last + row * h : at.gates + 2 * h;
    at.bias = buffers_.bias;
    at.last_bias = biases ? biases + r_.width() + 2 * h : nullptr;
    at.peepholes = r_.with_peepholes ? args_.in<T>(7) + direction * 3 * h : nullptr;
    at.hidden = buffers_.hidden + row * h;
    at.cell = buffers_.cell + row * h;
    return at;
  }

  void advance(const Place<T>& at) const {
    if (r_.kind == Kind::lstm) return advance_lstm(at, r_.coupled);
    if (r_.kind == Kind::rnn) return advance_rnn(at);
    if (!r_.resets_before()) open_gru(at);
    advance_gru(at, r_.reset_after);
  }

  const Recurrence& r_;
  const KernelArgs& args_;
  Buffers<T> buffers_;
};

/// The product of [m, k] by the transpose of a matrix [n, k], which is packed or plain.
template <typename T>
std::shared_ptr<MatrixProduct> turned_product(int64_t m, const TurnedMatrix& matrix, const PrepareContext& context) {
  const int64_t n = matrix.rows, k = matrix.columns;
  ProductSpec spec;
  spec.shape = gemm_shape(View::dense({m, k}), View::dense({n, k}), false, true, context.node.label());
  spec.operands = spec.result = dtype_of<T>();
  spec.weight = matrix.layout;
  spec.threads = context.threads;
  spec.label = context.node.label();
  return make_product(spec);
}

/// The state's product at every step. If there are several, a plain matrix is packed before them, in each run: it may
/// be an operand that changes.
template <typename T>
class StepProduct {
 public:
  StepProduct(int64_t m, TurnedMatrix matrix, int64_t steps, const PrepareContext& context) {
    constexpr int64_t kFew = 4;
    if (!matrix.layout && steps >= kFew && m * matrix.count() > 0) {
      matrix.layout = matmul_weight_layout(dtype_of<T>(), {matrix.rows, matrix.columns}, true);
      if (matrix.layout) pack_ = onednn::reorder(matrix.layout->plain, matrix.layout->packed, context.threads);
      if (!pack_) matrix.layout.reset();
    }
    product_ = turned_product<T>(m, matrix, context);
    packed_at_ = plan_.add(pack_ ? matrix.layout->bytes() : 0);
    inner_at_ = plan_.add(std::max(product_->scratch_bytes(), pack_ ? pack_->scratch_bytes() : size_t{0}));
  }
  size_t scratch_bytes() const { return plan_.bytes(); }

  /// What run() takes for the matrix.
  const void* prepared(const void* matrix, void* scratch) const {
    if (!pack_) return matrix;
    void* packed = scratch_at(scratch, packed_at_);
    pack_->run(std::array<const void*, 2>{matrix, packed}, scratch_at(scratch, inner_at_));
    return packed;
  }
  void run(const T* state, const void* prepared, T* result, void* scratch) const {
    product_->run(state, prepared, nullptr, result, scratch_at(scratch, inner_at_));
  }

 private:
  std::shared_ptr<onednn::Primitive> pack_;
  std::shared_ptr<MatrixProduct> product_;
  ScratchPlan plan_;
  size_t packed_at_ = 0, inner_at_ = 0;
};

/// The matrices of each direction: all in operand 1, if that is packed; else in operands 1 and 2.
class Matrices {
 public:
  Matrices(const Recurrence& r, const PrepareContext& context) : is_packed_(is_packed(context.node)) {
    if (is_packed_) {
      const TensorDesc weight = packed_weight_desc(context.node);
      form_ = *recurrence_form(context.node, packed_operator(context.node), weight, weight.dtype);
    } else {
      const int64_t first = r.first_gates() * r.h;
      form_ = {r.directions, {r.width(), r.i}, {first, r.h}, {r.width() - first, r.h}};
    }
  }
  static bool is_packed(const Node& node) { return node.domain == "tessera.cpu"; }

  const RecurrenceForm& form() const { return form_; }

  struct OfDirection {
    const void *input = nullptr, *state = nullptr, *last = nullptr;
  };
  template <typename T>
  OfDirection of(const KernelArgs& args, int64_t direction) const {
    if (!is_packed_) {
      const T* recurrence = args.in<T>(2) + direction * (form_.state.count() + form_.last.count());
      return {args.in<T>(1) + direction * form_.input.count(), recurrence, recurrence + form_.state.count()};
    }
    const auto* packed =
        static_cast<const std::byte*>(args.inputs[1]) + static_cast<size_t>(direction) * form_.direction_bytes();
    return {packed, packed + form_.state_at(), packed + form_.last_at()};
  }

 private:
  bool is_packed_ = false;
  RecurrenceForm form_;
};

Recurrence recurrence_of(const PrepareContext& context) {
  const Node& node = context.node;
  Recurrence r;
  const std::string op_type = packed_operator(node);
  r.kind = op_type == "LSTM" ? Kind::lstm : op_type == "GRU" ? Kind::gru : Kind::rnn;
  r.gates = r.kind == Kind::lstm ? 4 : r.kind == Kind::gru ? 3 : 1;
  const Dims& x = context.inputs.at(0).dims;
  const bool packed = Matrices::is_packed(node);
  const Dims weights = packed ? packed_weight_desc(node).dims : context.inputs.at(1).dims;
  const Dims turn = packed ? Dims{weights.at(0), weights.at(1), weights.at(1) / r.gates} : context.inputs.at(2).dims;
  r.batch_first = node.get_int("layout", 0) != 0;
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    fail("kernel", "{}: the direction is '{}'; it must be forward, reverse or bidirectional", node.label(), direction);
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

template <typename T>
std::unique_ptr<Kernel> prepare(const Recurrence& r, const PrepareContext& context) {
  const Matrices matrices(r, context);
  auto input = turned_product<T>(r.t * r.n, matrices.form().input, context);
  const StepProduct<T> recurrent(r.n, matrices.form().state, r.t, context);
  std::optional<StepProduct<T>> last;
  if (r.resets_before()) last.emplace(r.n, matrices.form().last, r.t, context);
  ScratchPlan plan;
  const auto buffer = [&](int64_t rows, int64_t columns) {
    return plan.add(checked_bytes({sizeof(T), rows, columns}, context.node.label()));
  };
  const size_t projected_at = buffer(r.t * r.n, r.width()), gates_at = buffer(r.n, r.first_gates() * r.h);
  const size_t last_at = buffer(last ? r.n : 0, r.h), held_at = buffer(last ? r.n : 0, r.h);
  const size_t bias_at = buffer(1, r.width()), hidden_at = buffer(r.n, r.h), cell_at = buffer(r.n, r.h);
  const size_t inner_at = plan.add(input->scratch_bytes());
  const size_t recurrent_at = plan.add(recurrent.scratch_bytes());
  const size_t reset_at = plan.add(last ? last->scratch_bytes() : 0);
  return make_kernel(
      [=](const KernelArgs& args) {
        const auto at = [&](size_t offset) { return scratch_at<T>(args.scratch, offset); };
        const Buffers<T> buffers{.projected = at(projected_at),
                                 .gates = at(gates_at),
                                 .last = at(last_at),
                                 .held = at(held_at),
                                 .bias = at(bias_at),
                                 .hidden = at(hidden_at),
                                 .cell = at(cell_at)};
        void *in_recurrent = scratch_at(args.scratch, recurrent_at), *in_reset = scratch_at(args.scratch, reset_at);
        Runner<T> runner(r, args, buffers);
        for (int64_t d = 0; d < r.directions; ++d) {
          const Matrices::OfDirection of = matrices.of<T>(args, d);
          input->run(args.in<T>(0), of.input, nullptr, buffers.projected, scratch_at(args.scratch, inner_at));
          const void* of_state = recurrent.prepared(of.state, in_recurrent);
          const void* of_reset = last ? last->prepared(of.last, in_reset) : nullptr;
          runner.begin(d);
          for (int64_t step = 0; step < r.t; ++step) {
            recurrent.run(buffers.hidden, of_state, buffers.gates, in_recurrent);
            if (last) {
              runner.reset(d, step);
              last->run(buffers.held, of_reset, buffers.last, in_reset);
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
  std::vector<KernelEntry> rows;
  for (std::string_view type : {"RNN", "GRU", "LSTM"})
    rows.push_back({.op_type = type, .domain = "", .prepare = prepare_recurrent, .pack = pack_recurrence});
  for (std::string_view type : {"PackedRNN", "PackedGRU", "PackedLSTM"})
    rows.push_back({type, "tessera.cpu", prepare_recurrent, {}});
  return rows;
}

}  // namespace tessera::kernels
