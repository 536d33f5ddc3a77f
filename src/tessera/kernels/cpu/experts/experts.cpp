#include "tessera/ir/experts.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/activations.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/experts/expert_matrices.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/move/indexing.h"
#include "tessera/kernels/cpu/product/matrix_product.h"
#include "tessera/kernels/registry.h"

/// A mixture of experts. Choices are sorted by expert, and each expert multiplies its rows in tiles of equal height, so
/// that a row gets the same bits whatever rows are beside it: the last tile is filled up with zeros. Results add up in
/// the order of experts. Example, tiles of two rows, tokens 0 to 2, each with two choices:
///
///     choices  3 1 | 1 0 | 1 3      expert 0: token 1;  1: tokens 0 1, then 2;  3: tokens 0 2
///
/// 16-bit operands are computed in float32; a matrix is widened when its expert has rows. Matrices of codes are read as
/// they lie.
namespace tessera::kernels {
namespace {

using Operand = ExpertsOperand;

struct ExpertsShape {
  int64_t tokens, choices, experts, in, hidden, out;
  int64_t columns;  ///< of the first product: hidden, or twice as many if it is fused
  int64_t tile;     ///< rows

  int64_t rows() const { return tokens * choices; }
};

/// h[j] = weight · act(g), or weight · act(g) · (u + beta); the columns of u begin at `u`, and both are `step` apart.
template <typename T>
struct Unit {
  bool gated = false;
  int64_t hidden = 0, step = 1;
  T limit = std::numeric_limits<T>::infinity(), beta = 0;
};

template <typename T, typename Act>
TESSERA_MULTIVERSION static void unit_row(const Unit<T>& unit, const T* g, const T* u, T weight, T* h, Act act) {
  const int64_t step = unit.step;
  const T limit = unit.limit, beta = unit.beta;
  if (!unit.gated) {
    for (int64_t j = 0; j < unit.hidden; ++j) h[j] = weight * act(g[j] > limit ? limit : g[j]);
    return;
  }
  for (int64_t j = 0; j < unit.hidden; ++j) {
    const T gate = g[j * step] > limit ? limit : g[j * step];
    const T least = u[j * step] < -limit ? -limit : u[j * step];
    h[j] = weight * (act(gate) * ((least > limit ? limit : least) + beta));
  }
}

/// unit_row() with an activation.
template <typename T>
using UnitRow = std::function<void(const Unit<T>& unit, const T* g, const T* u, T weight, T* h)>;

/// The place of a choice's expert among those that the operands hold; -1: another rank's.
using ExpertPlace = std::function<int64_t(const KernelArgs& args, int64_t choice)>;

template <typename T>
TESSERA_MULTIVERSION static void add_row(T* to, const T* row, T factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] += factor * row[j];
}

struct Identity {
  template <typename T>
  T operator()(T x) const {
    return x;
  }
};

template <typename T>
std::unique_ptr<ExpertMatrices<Compute<T>>> make_matrices(const PrepareContext& context, const ExpertsCodes& operands,
                                                          int64_t tile, ScratchPlan& plan) {
  if (!context.has_input(operands.scales))
    return std::make_unique<PlainMatrices<T, Compute<T>>>(context, operands.codes, tile, plan);
  if constexpr (std::is_same_v<Compute<T>, float>)
    return std::make_unique<CodedMatrices>(context, operands, tile);
  else
    fail_dtype(context.node, dtype_of<T>());
}

template <typename T>
class Experts : public Kernel {
 public:
  using C = Compute<T>;

  Experts(const PrepareContext& context, const ExpertsShape& shape, UnitRow<C> unit_row, ExpertPlace place)
      : shape_(shape),
        unit_row_(std::move(unit_row)),
        place_(std::move(place)),
        threads_(context.threads),
        choice_type_(context.inputs[Operand::choices].dtype),
        adds_in_place_(context.outputs[0].dtype == dtype_of<C>()),
        gate_(make_matrices<T>(context, kGateCodes, shape.tile, plan_)),
        down_(make_matrices<T>(context, kDownCodes, shape.tile, plan_)) {
    const Gated gated = gated_of(context.node);
    unit_.gated = gated != Gated::no;
    unit_.hidden = shape.hidden;
    unit_.step = gated == Gated::interleaved ? 2 : 1;
    unit_.beta = static_cast<C>(context.node.get_float("beta", 0));
    if (context.node.find_attribute("limit")) unit_.limit = static_cast<C>(context.node.get_float("limit", 0));
    u_begins_ = gated == Gated::halves ? shape.hidden : 1;
    if (gated == Gated::apart) up_ = make_matrices<T>(context, kUpCodes, shape.tile, plan_);
    for (size_t operand : {size_t{Operand::gate_bias}, size_t{Operand::up_bias}, size_t{Operand::down_bias}})
      has_bias_[operand] = context.has_input(operand);
    const auto room = [&](int64_t columns) { return plan_.add(bytes_of(dtype_of<C>(), shape.tile * columns)); };
    rows_at_ = room(shape.in);
    g_at_ = room(shape.columns);
    u_at_ = up_ ? room(shape.hidden) : 0;
    h_at_ = room(shape.hidden);
    y_at_ = room(shape.out);
    bias_at_ = plan_.add(bytes_of(dtype_of<C>(), std::max(shape.columns, shape.out)));
    sums_at_ = adds_in_place_ ? 0 : plan_.add(bytes_of(dtype_of<C>(), shape.tokens * shape.out));
    begins_at_ = plan_.add(bytes_of(DType::int64, shape.experts + 1));
    order_at_ = plan_.add(bytes_of(DType::int64, shape.rows()));
    size_t inner = std::max(gate_->scratch_bytes(), down_->scratch_bytes());
    if (up_) inner = std::max(inner, up_->scratch_bytes());
    inner_at_ = plan_.add(inner);
  }

  size_t scratch_bytes() const override { return plan_.bytes(); }

  void run(const KernelArgs& args) override {
    C* sums = adds_in_place_ ? args.out<C>() : scratch_at<C>(args.scratch, sums_at_);
    std::fill_n(sums, shape_.tokens * shape_.out, C(-0.0));  // it changes no sum
    sort(args);
    const auto* begins = scratch_at<int64_t>(args.scratch, begins_at_);
    for (int64_t e = 0; e < shape_.experts; ++e)
      if (begins[e] < begins[e + 1]) run_expert(args, e, begins[e], begins[e + 1], sums);
    if constexpr (!std::is_same_v<T, C>)
      if (!adds_in_place_) narrow(sums, dtype_of<T>(), args.outputs[0], shape_.tokens * shape_.out, threads_);
  }

 private:
  /// Lists the choices of each expert in their order: `order` from begins[e] to begins[e + 1].
  void sort(const KernelArgs& args) const {
    auto* begins = scratch_at<int64_t>(args.scratch, begins_at_);
    auto* order = scratch_at<int64_t>(args.scratch, order_at_);
    const Indices choices(args.inputs[Operand::choices], choice_type_);
    const auto expert_of = [&](int64_t row) { return place_(args, choices[row]); };
    std::fill_n(begins, shape_.experts + 1, int64_t{0});
    for (int64_t row = 0; row < shape_.rows(); ++row)
      if (const int64_t e = expert_of(row); e >= 0) ++begins[e + 1];
    for (int64_t e = 0; e < shape_.experts; ++e) begins[e + 1] += begins[e];
    for (int64_t row = 0; row < shape_.rows(); ++row)
      if (const int64_t e = expert_of(row); e >= 0) order[begins[e]++] = row;
    for (int64_t e = shape_.experts; e > 0; --e) begins[e] = begins[e - 1];
    begins[0] = 0;
  }

  void run_expert(const KernelArgs& args, int64_t e, int64_t begin, int64_t end, C* sums) const {
    for (ExpertMatrices<C>* matrices : {gate_.get(), up_.get(), down_.get()})
      if (matrices) matrices->choose(e, args);
    void* inner = scratch_at(args.scratch, inner_at_);
    C *x = scratch_at<C>(args.scratch, rows_at_), *g = scratch_at<C>(args.scratch, g_at_),
      *h = scratch_at<C>(args.scratch, h_at_), *y = scratch_at<C>(args.scratch, y_at_);
    C* u = up_ ? scratch_at<C>(args.scratch, u_at_) : g + u_begins_;
    const int64_t u_row = up_ ? shape_.hidden : shape_.columns;
    for (int64_t at = begin; at < end; at += shape_.tile) {
      const int64_t rows = std::min(shape_.tile, end - at);
      const int64_t* order = scratch_at<int64_t>(args.scratch, order_at_) + at;
      gather(args, order, rows, x);
      gate_->multiply(x, g, inner);
      if (up_) up_->multiply(x, u, inner);
      add_bias(args, Operand::gate_bias, e, g, shape_.columns, rows);
      if (up_) add_bias(args, Operand::up_bias, e, u, shape_.hidden, rows);
      const T* weights = args.in<T>(Operand::weights);
      for_rows(rows, shape_.hidden, [&](int64_t r) {
        unit_row_(unit_, g + r * shape_.columns, u + r * u_row, load(weights[order[r]]), h + r * shape_.hidden);
      });
      std::fill_n(h + rows * shape_.hidden, (shape_.tile - rows) * shape_.hidden, C(0));
      down_->multiply(h, y, inner);
      const C* bias = bias_of(args, Operand::down_bias, e, shape_.out);
      // One after the other, since a token may choose an expert twice.
      for (int64_t r = 0; r < rows; ++r) {
        C* sum = sums + order[r] / shape_.choices * shape_.out;
        add_row(sum, y + r * shape_.out, C(1), shape_.out);
        if (bias) add_row(sum, bias, load(weights[order[r]]), shape_.out);
      }
    }
  }

  void gather(const KernelArgs& args, const int64_t* order, int64_t rows, C* x) const {
    const T* tokens = args.in<T>(Operand::tokens);
    for (int64_t r = 0; r < rows; ++r) {
      const T* token = tokens + order[r] / shape_.choices * shape_.in;
      if constexpr (std::is_same_v<T, C>)
        std::copy_n(token, shape_.in, x + r * shape_.in);
      else
        widen_row(token, x + r * shape_.in, shape_.in);
    }
    std::fill_n(x + rows * shape_.in, (shape_.tile - rows) * shape_.in, C(0));
  }

  /// The bias of an expert; null if there is none.
  const C* bias_of(const KernelArgs& args, size_t operand, int64_t e, int64_t columns) const {
    if (!has_bias_[operand]) return nullptr;
    const T* bias = args.in<T>(operand) + e * columns;
    if constexpr (std::is_same_v<T, C>) {
      return bias;
    } else {
      C* wide = scratch_at<C>(args.scratch, bias_at_);
      widen_row(bias, wide, columns);
      return wide;
    }
  }

  void add_bias(const KernelArgs& args, size_t operand, int64_t e, C* to, int64_t columns, int64_t rows) const {
    if (const C* bias = bias_of(args, operand, e, columns))
      for_rows(rows, columns, [&](int64_t r) { add_row(to + r * columns, bias, C(1), columns); });
  }

  template <typename Body>
  void for_rows(int64_t rows, int64_t columns, Body&& body) const {
    for_ranges(rows, rows * columns, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) body(r);
    });
  }

  ExpertsShape shape_;
  UnitRow<C> unit_row_;
  ExpertPlace place_;
  int threads_;
  DType choice_type_;
  bool adds_in_place_;
  ScratchPlan plan_;
  std::unique_ptr<ExpertMatrices<C>> gate_, down_, up_;  // up_: null if it is not apart
  Unit<C> unit_;
  int64_t u_begins_ = 0;
  std::array<bool, Operand::all> has_bias_{};
  size_t rows_at_ = 0, g_at_ = 0, u_at_ = 0, h_at_ = 0, y_at_ = 0, bias_at_ = 0, sums_at_ = 0, begins_at_ = 0,
         order_at_ = 0, inner_at_ = 0;
};

/// The height of tiles: that of an expert's rows, if all are chosen equally often, up to a bound. It depends on the
/// operands' extents alone.
int64_t tile_for(const ExpertsShape& shape) {
  constexpr int64_t kMost = 32;
  const int64_t experts = std::max<int64_t>(shape.experts, 1);
  const int64_t rows = std::min({(shape.rows() + experts - 1) / experts, shape.tokens, kMost});
  int64_t tile = 1;
  while (tile < rows) tile *= 2;
  return tile;
}

/// [experts, rows, columns], of numbers or codes.
Dims matrix_dims(const PrepareContext& context, const ExpertsCodes& operands) {
  const Dims& dims = context.inputs.at(operands.codes).dims;
  if (!context.has_input(operands.scales)) return dims;
  return {dims.at(0), dims.at(2) * 8 / context.node.get_int(operands.bits, 4), dims.at(1)};
}

ExpertsShape experts_shape(const PrepareContext& context) {
  const auto dims = [&](size_t operand) { return context.inputs.at(operand).dims; };
  ExpertsShape shape{};
  shape.tokens = dims(Operand::tokens).at(0);
  shape.in = dims(Operand::tokens).at(1);
  shape.choices = dims(Operand::choices).at(1);
  shape.experts = dims(Operand::gate).at(0);
  const Dims gate = matrix_dims(context, kGateCodes), down = matrix_dims(context, kDownCodes);
  shape.columns = gate.at(2);
  shape.hidden = down.at(1);
  shape.out = down.at(2);
  shape.tile = tile_for(shape);
  bool fits = dims(Operand::choices) == Dims{shape.tokens, shape.choices} &&
              dims(Operand::weights) == dims(Operand::choices) && gate[1] == shape.in && down[0] == shape.experts &&
              shape.columns == (is_fused(gated_of(context.node)) ? 2 : 1) * shape.hidden &&
              context.outputs.at(0).dims == Dims{shape.tokens, shape.out};
  const auto fits_if_there = [&](size_t operand, const Dims& wanted) {
    fits &= !context.has_input(operand) || dims(operand) == wanted;
  };
  fits &=
      !context.has_input(Operand::up) || matrix_dims(context, kUpCodes) == Dims{shape.experts, shape.in, shape.hidden};
  fits_if_there(Operand::gate_bias, {shape.experts, shape.columns});
  fits_if_there(Operand::up_bias, {shape.experts, shape.hidden});
  fits_if_there(Operand::down_bias, {shape.experts, shape.out});
  if (!fits) fail("kernel", "{}: the extents of its operands do not fit together", context.node.label());
  return shape;
}

/// unit_row() with the node's activation.
template <typename T>
UnitRow<T> unit_row_of(const Node& node) {
  const std::string name = node.get_string("activation", "identity");
  const auto with = [](auto act) -> UnitRow<T> {
    return [act](const Unit<T>& unit, const T* g, const T* u, T weight, T* h) { unit_row(unit, g, u, weight, h, act); };
  };
  if (name == "relu") return with(Relu());
  if (name == "gelu") return with(GeluExact());
  if (name == "gelu_tanh") return with(GeluTanh());
  if (name == "swish") return with(Swish(node));
  return with(Identity());
}

template <typename Part>
std::unique_ptr<Kernel> prepare_part(const PrepareContext& context, const Part& part) {
  check_index_type(context, Operand::choices);
  const ExpertsShape shape = experts_shape(context);
  const ExpertPlace place = [part, experts = shape.experts, label = context.node.label()](const KernelArgs& args,
                                                                                          int64_t choice) {
    return part.place(args, label, choice, experts);
  };
  return dispatch(FloatTypes(), context.node, context.inputs[Operand::tokens].dtype,
                  [&]<typename T>() -> std::unique_ptr<Kernel> {
                    return std::make_unique<Experts<T>>(context, shape, unit_row_of<Compute<T>>(context.node), place);
                  });
}

std::unique_ptr<Kernel> prepare_experts(const PrepareContext& context) {
  return prepare_part(context, Unsplit());
}
std::unique_ptr<Kernel> prepare_experts_shard(const PrepareContext& context) {
  return prepare_part(context, Shard(context, Operand::offset, 1));
}

/// Products read matrices of numbers by rows or by columns; a 16-bit matrix is widened in its own layout, from dense
/// memory.
bool takes_matrices(const Node& node, int operand, const View& view) {
  if (has_codes(node) || view.dims.size() != 3 || !is_product_operand(view)) return false;
  const DType dtype = node.input(operand)->dtype();
  if (dtype == DType::float32 || dtype == DType::float64) return true;
  const View one{{view.dims[1], view.dims[2]}, {view.strides[1], view.strides[2]}, 0};
  return one.is_dense() || permuted(one, {1, 0}).is_dense();
}

}  // namespace

std::vector<KernelEntry> experts_kernels() {
  const KernelEntry whole{.op_type = "Experts",
                          .domain = kExpertsDomain,
                          .prepare = prepare_experts,
                          .strided = {Operand::gate, Operand::down, Operand::up},
                          .takes_strided = takes_matrices};
  KernelEntry shard = whole;
  shard.op_type = "ExpertsShard";
  shard.prepare = prepare_experts_shard;
  return {whole, shard};
}

}  // namespace tessera::kernels
