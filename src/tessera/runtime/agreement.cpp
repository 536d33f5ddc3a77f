#include "tessera/runtime/agreement.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/ir/hash.h"

namespace tessera::runtime {
namespace {

struct Record {
  int32_t kind = 0;                   // an ErrorKind; 0: no error
  int64_t mark = 0;                   // of the rank's data; it may be negated
  std::array<char, 40> what{};        // the rank was given
  std::array<char, 40> stage{"run"};  // of the error
  std::array<char, 500> message{};
};

template <size_t N>
void put(std::array<char, N>& to, std::string_view text) {
  to = {};
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

Record record_of(const std::exception_ptr& error) {
  Record record;
  try {
    if (error) std::rethrow_exception(error);
    return record;
  } catch (const Error& known) {
    record.kind = static_cast<int32_t>(known.kind());
    put(record.stage, known.stage());
    put(record.message, known.message());
  } catch (const std::exception& other) {
    record.kind = static_cast<int32_t>(ErrorKind::running);
    put(record.message, other.what());
  }
  return record;
}

/// Rank 2's error "[bind] extent" as an Error of the same stage that names the rank.
std::exception_ptr error_of(int rank, const Record& record) {
  return std::make_exception_ptr(Error(static_cast<ErrorKind>(record.kind), record.stage.data(),
                                       fmt::format("rank {}: {}", rank, record.message.data())));
}

/// The error of all ranks if `rank` has another mark than rank 0.
Error difference(const Record& first, std::ptrdiff_t rank, const Record& other) {
  const std::string_view what = first.what.data(), its = other.what.data();
  if (what == its)
    return {ErrorKind::user, what,
            fmt::format("rank {} was given {}, but rank 0 {}; give all ranks the same", rank, other.message.data(),
                        first.message.data())};
  return {ErrorKind::user, "run",
          fmt::format("rank {} has reached its {}, but rank 0 its {}: ranks do not make the same calls; start all with "
                      "the same command",
                      rank, its, what)};
}

}  // namespace

std::exception_ptr agree(comm::Communicator& everyone, std::exception_ptr own, const Given& given) {
  // Buffers that a library may still read or write if a wait throws.
  KeptIfThrown<std::vector<int64_t>> most;
  KeptIfThrown<std::vector<Record>> records;  // all ranks', then our own
  *records = std::vector<Record>(everyone.size() + 1);
  Record& record = (*records).back() = record_of(own);
  put(record.what, given.what);
  if (!own) put(record.message, given.words);
  Hash hash;
  hash.add(given.what);
  hash.add(given.words);
  record.mark = static_cast<int64_t>(hash.value() >> 1);
  *most = {record.kind, record.mark, -record.mark};
  everyone.run({.kind = comm::Kind::all_reduce,
                .dtype = DType::int64,
                .reduction = Reduction::max,
                .in = (*most).data(),
                .out = (*most).data(),
                .count = 3,
                .label = "errors",
                .joins = given.joins});
  if ((*most)[0] == 0 && (*most)[1] == -(*most)[2]) return nullptr;
  const std::vector<int64_t> counts(everyone.size(), sizeof(Record));
  everyone.run({.kind = comm::Kind::all_gather,
                .dtype = DType::uint8,
                .in = &record,
                .out = (*records).data(),
                .counts = counts,
                .label = "errors"});
  if (own) return own;
  const std::span all((*records).data(), counts.size());
  const auto failed = std::find_if(all.begin(), all.end(), [](const Record& other) { return other.kind != 0; });
  if (failed != all.end()) return error_of(static_cast<int>(failed - all.begin()), *failed);
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Record& each) { return each.mark != all.front().mark; });
  check(other != all.end(), "ranks' marks differed a moment ago");
  return std::make_exception_ptr(difference(all.front(), other - all.begin(), *other));
}

}  // namespace tessera::runtime
