#include "tessera/kernels/versions.h"

namespace tessera::kernels {

// __builtin_cpu_supports takes only a literal, so this cannot be a table.
std::vector<std::string> instruction_sets() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
  if (__builtin_cpu_supports("avx512vnni")) found.emplace_back("avx512_vnni");
  if (__builtin_cpu_supports("avx512bf16")) found.emplace_back("avx512_bf16");
#if !defined(__clang__)  // clang 16 does not know the name
  if (__builtin_cpu_supports("amx-bf16")) found.emplace_back("amx_bf16");
#endif
#endif
  return found;
}

}  // namespace tessera::kernels
