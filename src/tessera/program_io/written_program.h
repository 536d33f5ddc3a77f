#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/runtime/rank_programs.h"
#include "tessera/spmd/program.h"
#include "tessera/write.h"

/// A program as a folder:
///
///     manifest.json     mesh, inputs, outputs and states with their shardings, which rank reads which file, hashes
///     rank_0.onnx       one model per class of ranks with equal programs, named after the first: local shapes,
///     communication as nodes
///                       of domain tessera.comm, and int64 nodes that compute sizes which depend on symbols
///     init_0.onnx       what such a rank computes once, if anything; its outputs are inputs of rank_0.onnx
///     weights/0.bin     one file per distinct set of shards; a model refers to that of its class' first rank
///
/// The weights files of one class share a layout, so that any ONNX tool can open a model with the first rank's weights;
/// the manifest says which other files fit.
namespace tessera::program_io {

/// Writes the folder whole or not at all; the same program gives the same bytes. `source` describes the program's
/// source. Replaces an older program at `folder`; any other content is a user error (stage "write").
void write_program(const spmd::Program& program, const std::string& source, const std::filesystem::path& folder,
                   const WriteOptions& options = {});

/// Reads a program for runtime::Executor, with the same bits as the program that was written. Maps the weights. Throws
/// user errors (stage "program") that name a file that is missing, invalid or changed (with `changed_models`, models
/// may have changed).
std::shared_ptr<const runtime::RankPrograms> read_program(const std::filesystem::path& folder,
                                                          bool changed_models = false);

/// Whether `path` is a folder with a manifest.
bool is_written_program(const std::filesystem::path& path);

/// The files in `folder` that have names of a written program's files. None is opened; empty if there is no such
/// folder.
std::vector<std::filesystem::path> files_of_written_program(const std::filesystem::path& folder);

}  // namespace tessera::program_io
