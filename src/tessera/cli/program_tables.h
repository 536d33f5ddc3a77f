#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/tessera.h"

/// What a program does, for people and as JSON.
namespace tessera::cli {

/// "AllReduce" in the form of summaries: "all_reduce".
std::string kind_of(std::string_view op);
void print_collectives(const Console& console, const ProgramSummary& summary);
void print_reshards(const Console& console, const std::vector<ReshardSummary>& reshards, size_t most);
Json collectives_json(const ProgramSummary& summary);
Json reshards_json(const std::vector<ReshardSummary>& reshards);
/// States with the bytes of a rank's shard, and with how they are stored and used.
Json states_json(const Program& program);
Json ports_json(const std::vector<TensorInfo>& ports);
/// {"name": "x", "dtype": "float32", "shape": ["batch", 128]}: numbers are numbers, expressions over symbols texts.
Json port_json(const TensorInfo& port);
Json mesh_json(const Mesh& mesh);
std::string mesh_text(const Mesh& mesh);
/// "at its peak a rank needs 1.1 GiB; a process, with 2 ranks, needs 1.9 GiB", which is what --memory-limit counts.
std::string peak_text(const std::vector<int64_t>& peaks, int64_t process_ranks, int64_t process_bytes);
/// `resident_bytes`: what the process has held in fact at its peak; left out if it is not known.
Json process_json(int64_t process_ranks, int64_t process_bytes, int64_t resident_bytes = 0);

}  // namespace tessera::cli
