#include "tessera/comm/plugin.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/comm/abi.h"

namespace tessera::comm {
namespace {

struct PluginRow {
  Engine engine;
  const char* package;  // Debian's, with the library
};
constexpr PluginRow kPlugins[] = {{Engine::mpi, "openmpi-bin"}, {Engine::gloo, "libgloo0"}};

const PluginRow& row_of(Engine engine) {
  for (const PluginRow& row : kPlugins)
    if (row.engine == engine) return row;
  fail("launch", "engine '{}' needs no plugin", name_of(engine));
}

/// Opens the engine's plugin, which stays open, since libraries like MPI's cannot be unloaded.
PluginConnect open_plugin(Engine engine) {
  const PluginRow& row = row_of(engine);
  const std::string file = fmt::format("libtessera_{}.so", name_of(engine));
  const auto folders = plugin_folders();
  for (const auto& folder : folders) {
    const auto path = folder / file;
    if (!std::filesystem::exists(path)) continue;
    void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened)
      fail("launch", "engine {}: {}; install what it needs (Debian: apt-get install {})", name_of(engine), dlerror(),
           row.package);
    auto abi = reinterpret_cast<PluginAbi>(dlsym(opened, kPluginAbiSymbol));
    auto connect = reinterpret_cast<PluginConnect>(dlsym(opened, kPluginConnectSymbol));
    if (!abi || !connect || std::string_view(abi()) != plugin_abi())
      fail("launch",
           "engine {}: {} is of another build of tessera (its interface is {}, this one's {}); install the one that "
           "came with it",
           name_of(engine), path.string(), abi ? abi() : "unknown", plugin_abi());
    return connect;
  }
  std::vector<std::string> names;
  for (const auto& folder : folders) names.push_back(folder.string());
  fail("launch",
       "engine {}: there is no {} in {}; it is built where Debian's {} is installed; set TESSERA_PLUGIN_PATH if it is "
       "elsewhere",
       name_of(engine), file, fmt::join(names, ", "), engine == Engine::mpi ? "libopenmpi-dev" : "libgloo-dev");
}

}  // namespace

const char* plugin_abi() {
  return kAbi;
}

const char* tessera_version() {
  return TESSERA_VERSION;
}

std::vector<std::filesystem::path> plugin_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* given = std::getenv("TESSERA_PLUGIN_PATH")) {
    std::string_view rest = given;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) folders.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::error_code error;
  const auto command = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    folders.push_back(command.parent_path());
    folders.push_back((command.parent_path() / "../lib/tessera").lexically_normal());
  }
  Dl_info library{};  // that this code is in: the command, or libtessera.so of another program
  if (dladdr(reinterpret_cast<const void*>(&plugin_folders), &library) != 0 && library.dli_fname != nullptr)
    folders.push_back(std::filesystem::path(library.dli_fname).parent_path() / "tessera");
  return folders;
}

std::unique_ptr<World> connect_plugin(const Launched& launch, const WorldOptions& options) {
  return std::unique_ptr<World>(open_plugin(launch.engine)(launch, options));
}

std::string why_no_plugin(Engine engine) {
  try {
    open_plugin(engine);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tessera::comm
