#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

/// Amounts of memory.
namespace tessera {
inline namespace v1 {

/// Bytes of memory of this machine, or the limit of this process' control group (container) if that is less; a
/// memory_limit of 0 stands for this.
size_t machine_memory();

/// Bytes as the library's messages write them: "12.5 MiB", with `digits` after the point.
std::string bytes_text(double bytes, int digits = 1);
/// Bytes of "65536", "512M" or "4G": K, M, G and T are powers of 1024. Nullopt for other text, for 0, and for more than
/// size_t holds.
std::optional<size_t> parse_bytes(std::string_view text);

}  // namespace v1
}  // namespace tessera
