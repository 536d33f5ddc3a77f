#include "tessera/bind/row_pieces.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tessera::bind {
namespace {

using kernels::PrepareContext;
using kernels::TensorDesc;

constexpr double kPieceFlops = 2e8;  // per thread: two to four milliseconds of a core
constexpr int64_t kRowStep = 64;     // all pieces but the last have a multiple of this many rows

bool is_dense(const TensorDesc& desc) {
  return desc.block == 0 && desc.strides.empty();
}

bool has_plain_rows(const Node& node) {
  return node.get_int("transA", 0) == 0 && node.input(1) && node.input(1)->rank() == 2;
}

/// The operands of a product that are divided together with the rows of its result [rows, columns].
struct Rows {
  int64_t rows = 0, columns = 0;
  std::vector<bool> cut;  ///< by operand: it has the same rows
};

std::optional<Rows> rows_of(const kernels::KernelEntry& entry, const PrepareContext& context) {
  if (!entry.row_product || !has_plain_rows(context.node) || context.outputs.size() != 1) return std::nullopt;
  const TensorDesc &a = context.inputs[0], &c = context.outputs[0];
  if (a.rank() < 2 || a.rank() != c.rank() || !is_dense(a) || !is_dense(c) || c.count() == 0) return std::nullopt;
  if (!std::equal(a.dims.begin(), a.dims.end() - 1, c.dims.begin())) return std::nullopt;
  Rows result{c.count() / c.dims.back(), c.dims.back(), std::vector<bool>(context.inputs.size())};
  result.cut[0] = true;
  for (size_t i = 2; i < context.inputs.size(); ++i) {
    const TensorDesc& other = context.inputs[i];
    if (!other.present()) continue;
    const bool is_row = other.count() == (other.dims.empty() ? 1 : other.dims.back());
    result.cut[i] = !is_row;
    if (!is_dense(other) || (!is_row && other.dims != c.dims)) return std::nullopt;
  }
  return result;
}

int64_t rows_per_piece(const Rows& rows, int64_t depth, int threads) {
  const double row_flops = 2.0 * static_cast<double>(rows.columns) * static_cast<double>(std::max<int64_t>(depth, 1));
  const double wanted = std::ceil(kPieceFlops * threads / row_flops / kRowStep) * kRowStep;
  return static_cast<int64_t>(std::min(wanted, static_cast<double>(rows.rows)));
}

/// The context of `count` rows of the whole.
PrepareContext context_of(const PrepareContext& whole, const Rows& rows, int64_t count) {
  PrepareContext piece = whole;
  piece.outputs[0].dims = {count, rows.columns};
  for (size_t i = 0; i < piece.inputs.size(); ++i) {
    Dims& dims = piece.inputs[i].dims;
    if (rows.cut[i]) {
      dims = {count, dims.back()};
      if (i < piece.known.size()) piece.known[i] = nullptr;
    } else if (i >= 2 && dims.size() > 2) {
      dims = {dims.back()};
    }
  }
  return piece;
}

/// Products of fewer rows may be computed in another way, with other bits, so a shorter rest joins the piece before it.
constexpr int64_t kLeastRows = 16;

class RowPieces : public kernels::Kernel {
 public:
  RowPieces(const kernels::Library& library, const kernels::KernelEntry& entry, const PrepareContext& context,
            const Rows& rows, int64_t per_piece, std::function<void()> between)
      : rows_(rows.rows),
        per_piece_(per_piece),
        last_rows_(rows.rows % per_piece),
        between_(std::move(between)),
        in_(context.inputs.size()) {
    for (size_t i = 0; i < in_.size(); ++i)
      steps_.push_back(rows.cut[i] ? context.inputs[i].bytes() / static_cast<size_t>(rows_) : 0);
    out_step_ = context.outputs[0].bytes() / static_cast<size_t>(rows_);
    kernel_ = library.prepare(entry, context_of(context, rows, per_piece));
    if (last_rows_ > 0 && last_rows_ < kLeastRows && rows_ > per_piece) last_rows_ += per_piece;
    if (last_rows_ > 0) last_ = library.prepare(entry, context_of(context, rows, last_rows_));
  }

  size_t scratch_bytes() const override {
    return std::max(kernel_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0);
  }
  int in_place_operand() const override { return kernel_->in_place_operand(); }

  void run(const kernels::KernelArgs& args) override {
    for (int64_t row = 0, count = 0; row < rows_; row += count) {
      const bool is_last = last_ && row + last_rows_ == rows_;
      count = is_last ? last_rows_ : per_piece_;
      if (row > 0) between_();
      for (size_t i = 0; i < in_.size(); ++i)
        in_[i] = args.inputs[i] ? args.in<std::byte>(i) + static_cast<size_t>(row) * steps_[i] : nullptr;
      void* out = args.out<std::byte>() + static_cast<size_t>(row) * out_step_;
      (is_last ? *last_ : *kernel_).run({in_, {&out, 1}, args.scratch, args.stream});
    }
  }

 private:
  int64_t rows_, per_piece_, last_rows_;  // the last: 0 if it is as long as the others
  std::function<void()> between_;
  std::unique_ptr<kernels::Kernel> kernel_, last_;
  std::vector<size_t> steps_;  // bytes of an operand's row; 0: every piece reads the whole operand
  size_t out_step_ = 0;
  std::vector<const void*> in_;
};

}  // namespace

std::unique_ptr<kernels::Kernel> in_row_pieces(const kernels::Library& library, const kernels::KernelEntry& entry,
                                               const PrepareContext& context, const std::function<void()>& between) {
  const std::optional<Rows> rows = rows_of(entry, context);
  if (!rows) return nullptr;
  const int64_t per_piece = rows_per_piece(*rows, context.inputs[0].dims.back(), context.threads);
  if (rows->rows < 2 * per_piece) return nullptr;
  return std::make_unique<RowPieces>(library, entry, context, *rows, per_piece, between);
}

}  // namespace tessera::bind
