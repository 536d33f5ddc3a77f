#pragma once

#include <map>
#include <string>

namespace tessera::kernels {

/// The versions of the libraries whose kernels run on this machine, by name.
std::map<std::string, std::string> library_versions();

}  // namespace tessera::kernels
