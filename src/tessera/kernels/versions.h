#pragma once

#include <map>
#include <string>
#include <vector>

namespace tessera::kernels {

/// The versions of the libraries whose kernels run on this machine, by name.
std::map<std::string, std::string> library_versions();

/// The instruction sets of this machine that kernels may use, as compilers name them: "avx512_bf16".
std::vector<std::string> instruction_sets();

}  // namespace tessera::kernels
