#include "tessera/kernels/cpu/quantized/integer_form.h"

#include <algorithm>

#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {

namespace {

/// Fills lines of channels that do not come in fours up to whole groups, if that adds a quarter at most.
void fill_lines(IntegerForm& form, int64_t line, int64_t channels) {
  const int64_t filling = (4 - line % 4) % 4;
  if (form.groups != 1 || channels % 4 == 0 || filling * 4 > line) return;
  form.weight.k = form.weight.k / line * (line + filling);
  form.line = line;
  form.filling = filling;
}

}  // namespace

std::optional<IntegerForm> integer_convolution_form(const Node& node, const TensorDesc& weight) {
  const Dims& dims = weight.dims;
  if (dims.size() < 3) return std::nullopt;
  const int64_t groups = node.get_int("group", 1);
  if (groups < 1 || dims[0] % groups != 0 || (groups > 1 && dims[1] == 1)) return std::nullopt;
  const int64_t taps = count_of(std::span(dims).subspan(2));
  IntegerForm form{.weight = {taps * dims[1], dims[0] / groups}, .groups = groups, .taps = taps, .turned = true};
  fill_lines(form, dims.back() * dims[1], dims[1]);
  return form;
}

size_t integer_form_scratch(const IntegerForm& form) {
  return form.turned ? static_cast<size_t>(form.weight.k * form.weight.n) : 0;
}

void pack_integer_form(const IntegerForm& form, DType dtype, const void* weight, std::byte* packed, void* scratch,
                       int threads) {
  const int64_t k = form.weight.k, n = form.weight.n, elements = form.elements();
  for (int64_t group = 0; group < form.groups; ++group) {
    const auto* columns = static_cast<const std::byte*>(weight) + group * elements * n;
    const void* matrix = columns;
    if (form.turned) {
      // A column [channels, taps] becomes rows [taps, channels].
      auto* rows = static_cast<std::byte*>(scratch);
      const int64_t taps = form.taps, channels = taps == 0 ? 0 : elements / taps;
      const std::byte zero{dtype == DType::uint8 ? uint8_t{0x80} : uint8_t{0}};  // of the packed form
#pragma omp parallel for num_threads(team_for(k* n, threads)) schedule(static)
      for (int64_t row = 0; row < k; ++row) {
        const int64_t in_line = row % (form.line + form.filling);
        const int64_t element = row / (form.line + form.filling) * form.line + in_line;
        if (in_line >= form.line)
          std::fill_n(rows + row * n, n, zero);
        else
          for (int64_t j = 0; j < n; ++j)
            rows[row * n + j] = columns[j * elements + element % channels * taps + element / channels];
      }
      matrix = rows;
    }
    pack_integers(form.weight, dtype, matrix, packed + group * form.weight.bytes(), threads);
  }
}

namespace {

std::optional<PackedLayout> packed_as(const IntegerForm& form, const Node& node, const TensorDesc& weight,
                                      std::string_view attribute) {
  if (form.bytes() == 0) return std::nullopt;
  PackedLayout packed = new_packed_layout(node, weight, form.bytes(), {attribute});
  packed.prepare = [form](const std::vector<TensorDesc>& operands, int threads) {
    return make_kernel(
        [=, dtype = operands.at(0).dtype](const KernelArgs& args) {
          pack_integer_form(form, dtype, args.inputs[0], args.out<std::byte>(), args.scratch, threads);
        },
        integer_form_scratch(form));
  };
  return packed;
}

}  // namespace

std::optional<PackedLayout> pack_integer_product(const Node& node, const TensorDesc& weight) {
  const Dims& dims = weight.dims;
  if (dims.size() != 2) return std::nullopt;
  const bool turned = node.get_int("transB", 0) != 0;
  const IntegerForm form{.weight = {dims[turned ? 1 : 0], dims[turned ? 0 : 1]}, .turned = turned};
  return packed_as(form, node, weight, "transB");
}

std::optional<PackedLayout> pack_integer_convolution(const Node& node, const TensorDesc& weight) {
  const auto form = integer_convolution_form(node, weight);
  return form ? packed_as(*form, node, weight, "group") : std::nullopt;
}

}  // namespace tessera::kernels
