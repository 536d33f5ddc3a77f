#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/launch.h"

namespace tessera::comm {

/// An engine that needs a library which some machines lack is a shared module, libtessera_NAME.so, which is opened only
/// when the engine is requested. Each module exports these two functions, by these names. Both sides must see the same
/// classes, which a hash of the headers and of the compiler confirms.
extern "C" {
using PluginAbi = const char* (*)();
/// Connects this process to the others of its launch; returns when all have joined. The caller owns the world. Throws.
using PluginConnect = World* (*)(const Launched& launch, const WorldOptions& options);
}
constexpr const char* kPluginAbiSymbol = "tessera_plugin_abi";
constexpr const char* kPluginConnectSymbol = "tessera_plugin_connect";
/// The hash that a plugin must return to be used with this library.
const char* plugin_abi();
/// The version, which ranks on several machines compare.
const char* tessera_version();

/// The folders in which plugins are looked for, in order: those of TESSERA_PLUGIN_PATH (':' between them), the folder
/// of the command, ../lib/tessera from there, and tessera/ beside the library.
std::vector<std::filesystem::path> plugin_folders();

/// The world of a launch by MPI or Gloo. Throws a user error with the fix if the plugin, or the library that it needs,
/// is missing, or the plugin is of another build.
std::unique_ptr<World> connect_plugin(const Launched& launch, const WorldOptions& options);

/// Why connect_plugin would refuse this engine on this machine; empty: it would not.
std::string why_no_plugin(Engine engine);

}  // namespace tessera::comm
