#pragma once

#include <filesystem>
#include <string_view>

/// Helpers for the files that the library reads and writes.
namespace tessera {
inline namespace v1 {

/// Writes `bytes` to a file, whole or not at all: they go to a hidden file beside it, which is flushed to the disk and
/// renamed. Throws a user error for a path that cannot be written, and a running error if the disk is full.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Removes the hidden files and folders of all that this process is writing; from then on, a write is a running error.
/// A process that ends before its calls return, as at a signal, calls this first; from a thread, since a handler of
/// signals may not.
void remove_unfinished();

/// The path of the file that is mapped at an address; null: there is none. Models, weights and data are mapped. If
/// such a file becomes shorter, reading it is the signal SIGBUS, whose handler may call this with `si_addr` to say
/// which file it was. The text is valid as long as the file stays mapped, and so in such a handler.
const char* mapped_file_at(const void* address);

}  // namespace v1
}  // namespace tessera
