#include "tessera/kernels/cpu/integer_form.h"

#include "tessera/kernels/cpu/dispatch.h"

namespace tessera::kernels {

std::optional<IntegerForm> integer_form(const Node& node, std::string_view op_type, const TensorDesc& weight) {
  const Dims& dims = weight.dims;
  if (op_type == "MatMulInteger" && dims.size() == 2) {
    const bool turned = node.get_int("transB", 0) != 0;
    return IntegerForm{.weight = {dims[turned ? 1 : 0], dims[turned ? 0 : 1]}, .turned = turned};
  }
  if (op_type != "ConvInteger" || dims.size() < 3) return std::nullopt;
  const int64_t groups = node.get_int("group", 1);
  if (groups < 1 || dims[0] % groups != 0 || (groups > 1 && dims[1] == 1)) return std::nullopt;
  const int64_t taps = count_of(std::span(dims).subspan(2));
  return IntegerForm{.weight = {taps * dims[1], dims[0] / groups}, .groups = groups, .taps = taps, .turned = true};
}

size_t integer_form_scratch(const IntegerForm& form) {
  return form.turned ? static_cast<size_t>(form.weight.k * form.weight.n) : 0;
}

void pack_integer_form(const IntegerForm& form, DType dtype, const void* weight, std::byte* packed, void* scratch,
                       int threads) {
  const int64_t k = form.weight.k, n = form.weight.n;
  for (int64_t group = 0; group < form.groups; ++group) {
    const auto* columns = static_cast<const std::byte*>(weight) + group * k * n;
    const void* matrix = columns;
    if (form.turned) {
      // A column [channels, taps] becomes rows [taps, channels].
      auto* rows = static_cast<std::byte*>(scratch);
      const int64_t taps = form.taps, channels = taps == 0 ? 0 : k / taps;
#pragma omp parallel for num_threads(team_for(k* n, threads)) schedule(static)
      for (int64_t row = 0; row < k; ++row)
        for (int64_t j = 0; j < n; ++j) rows[row * n + j] = columns[j * k + row % channels * taps + row / channels];
      matrix = rows;
    }
    pack_integers(form.weight, dtype, matrix, packed + group * form.weight.bytes(), threads);
  }
}

std::unique_ptr<Kernel> prepare_pack_integers(const IntegerForm& form, DType dtype, int threads) {
  return make_kernel(
      [=](const KernelArgs& args) {
        pack_integer_form(form, dtype, args.inputs[0], args.out<std::byte>(), args.scratch, threads);
      },
      integer_form_scratch(form));
}

}  // namespace tessera::kernels
