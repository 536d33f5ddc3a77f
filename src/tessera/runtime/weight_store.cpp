#include "tessera/runtime/weight_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/pages.h"
#include "tessera/runtime/init.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {
WeightStore::WeightStore(RankState& rank, std::shared_ptr<SharedWeights> shared)
    : rank_(rank), shared_(std::move(shared)), names_(rank.mesh(), rank.rank()), initial_(rank.initial()) {}

Tensor WeightStore::made_once(const WeightForm& form, const std::function<Tensor()>& make) {
  return rank_.device().uses_host_memory() ? shared_->get(form, make) : make();
}

Tensor WeightStore::copied(const RankPrograms& programs, const Value* state, const WeightPart& part) {
  return shared_->get({part, kPlainForm}, [&] {
    return rank_.memory().on_host(state->dtype(), initial_.dims_of(state),
                                  fmt::format("the shard of '{}'", state->name),
                                  [&](void* to) { initial_.copy(programs, state, to); });
  });
}

const Tensor& WeightStore::shard(const RankPrograms& programs, const Value* state) {
  if (rank_.device().uses_host_memory()) return host_shard(programs, state);
  const WeightPart& part = names_.part_of(programs, state);
  if (auto known = resident_.find(part); known != resident_.end()) return known->second;
  const bool only_for_this = !shards_.contains(part);
  const Tensor plain = host_shard(programs, state);
  Tensor copy = rank_.memory().resident(plain, state->name);
  if (only_for_this) shards_.erase(part);
  return resident_.emplace(part, std::move(copy)).first->second;
}

const Tensor& WeightStore::host_shard(const RankPrograms& programs, const Value* state) {
  const WeightPart& part = names_.part_of(programs, state);
  if (auto known = shards_.find(part); known != shards_.end()) return known->second.tensor;
  Shard shard;
  if (programs.of(rank_.rank()).derived.contains(state)) {
    shard.tensor = made(programs, state);
  } else {
    initial_.require(programs, state);
    if (std::optional<Tensor> there = initial_.view(programs, state))
      shard = {std::move(*there), true};
    else
      shard.tensor = copied(programs, state, part);
  }
  return shards_.emplace(part, std::move(shard)).first->second.tensor;
}

std::unique_ptr<kernels::Kernel> WeightStore::packer(const bind::WeightToPack& wanted) const {
  std::vector<kernels::TensorDesc> operands = {{wanted.weight->dtype(), wanted.dims}};
  for (const Value* beside : wanted.beside)
    operands.push_back(beside ? kernels::TensorDesc{beside->dtype(), initial_.dims_of(beside)} : kernels::TensorDesc());
  return wanted.layout.prepare(operands, rank_.threads());
}

// Bytes that are held meanwhile: the packed form, what it is packed from, and scratch memory.
size_t WeightStore::bytes_to_pack(const RankPrograms& programs, const bind::WeightToPack& wanted,
                                  const kernels::Kernel& packer) {
  size_t bytes = wanted.layout.bytes + packer.scratch_bytes() + bytes_to_copy(programs, wanted.weight);
  for (const Value* beside : wanted.beside)
    if (beside && beside->kind == ValueKind::state) bytes += bytes_to_copy(programs, beside);
  return bytes;
}

// The parts that only this packed form needs, and that are not kept yet.
std::vector<WeightPart> WeightStore::spared_parts(const RankPrograms& programs,
                                                  const std::vector<const Value*>& spared) {
  std::vector<WeightPart> parts;
  for (const Value* value : spared) {
    if (value->kind != ValueKind::state || value->uses.size() != 1 || programs.of(rank_.rank()).derived.contains(value))
      continue;
    if (const WeightPart& own = names_.part_of(programs, value); !is_kept(own)) parts.push_back(own);
  }
  return parts;
}

const Tensor& WeightStore::packed(const RankPrograms& programs, const bind::WeightToPack& wanted) {
  const WeightForm form = names_.form_of(programs, wanted);
  if (const auto known = packed_.find(form); known != packed_.end()) return known->second;
  const std::unique_ptr<kernels::Kernel> packer = this->packer(wanted);
  const bool only_for_this = !is_kept(form.part);
  const bool is_derived = programs.of(rank_.rank()).derived.contains(wanted.weight);
  const size_t meanwhile = bytes_to_pack(programs, wanted, *packer);
  note_packing(meanwhile);
  const std::vector<WeightPart> spared = spared_parts(programs, wanted.spared);
  std::shared_ptr<const void> reserved;
  Tensor result{DType::uint8, {static_cast<int64_t>(wanted.layout.bytes)}, nullptr, nullptr, wanted.layout.bytes};
  rank_.memory().use([&] {
    result = made_once(form, [&] {
      reserved = rank_.memory().reserve(meanwhile);
      return pack(programs, wanted, *packer);
    });
  });
  const Tensor& kept = packed_.emplace(form, std::move(result)).first->second;
  if (only_for_this) let_go_of_plain(form.part, is_derived, wanted.weight->uses.size() == 1);
  for (const WeightPart& own : spared) {
    resident_.erase(own);
    shards_.erase(own);
  }
  return kept;
}

// Bytes of a shard that is neither kept yet nor a view.
size_t WeightStore::bytes_to_copy(const RankPrograms& programs, const Value* state) {
  const WeightPart& part = names_.part_of(programs, state);
  const bool is_there =
      is_kept(part) || programs.of(rank_.rank()).derived.contains(state) || initial_.view(programs, state);
  return is_there ? 0 : bytes_of(state->dtype(), count_of(initial_.dims_of(state)));
}

// Results of init may be needed in another form until all has been loaded.
void WeightStore::let_go_of_plain(const WeightPart& part, bool is_derived, bool is_last) {
  resident_.erase(part);
  auto plain = shards_.extract(part);
  if (!is_derived) {
    if (plain && plain.mapped().is_view) MappedFile::let_go(plain.mapped().tensor, 0, plain.mapped().tensor.count());
    return;
  }
  if (plain && !is_last) made_.emplace(part, std::move(plain.mapped().tensor));
  if (is_last) made_.erase(part);
}

Tensor WeightStore::pack(const RankPrograms& programs, const bind::WeightToPack& wanted, kernels::Kernel& packer) {
  const std::string& name = wanted.weight->name;
  std::vector<Tensor> plain = {shard(programs, wanted.weight)};
  plain.front().data += bytes_of(plain.front().dtype, wanted.begin);
  for (const Value* beside : wanted.beside)
    plain.push_back(!beside                               ? Tensor()
                    : beside->kind == ValueKind::constant ? rank_.constant(beside)
                                                          : shard(programs, beside));
  const device::HostMemory pages = [](size_t size, const char* what) {
    return std::shared_ptr<std::byte[]>(allocate_pages(size, what));
  };
  Tensor result{DType::uint8, {static_cast<int64_t>(wanted.layout.bytes)}, nullptr, nullptr, wanted.layout.bytes};
  auto held = rank_.memory().hold(result.bytes, fmt::format("the packed form of '{}'", name));
  const device::Memory packed = rank_.device().allocate(result.bytes, "a packed weight", pages);
  result.owner = packed;
  result.data = packed.get();
  const size_t scratch_bytes = packer.scratch_bytes();
  const auto meanwhile =
      rank_.memory().hold(scratch_bytes, fmt::format("the scratch memory in which '{}' is packed", name));
  const device::Memory scratch = rank_.device().allocate(scratch_bytes, "scratch memory", pages);
  std::vector<const void*> in;
  for (const Tensor& operand : plain) in.push_back(operand.data);
  void* out = packed.get();
  rank_.queues().compute().run(packer, {in, std::span(&out, 1), scratch.get()});
  rank_.queues().finish();
  return device::MemoryLimit::released_with(std::move(result), std::move(held));
}

std::shared_ptr<const void> WeightStore::initialize(const RankPrograms& programs) {
  std::vector<const Value*> missing;
  for (const auto& [state, made] : programs.of(rank_.rank()).derived)
    if (!initialized_.contains(names_.part_of(programs, state))) missing.push_back(state);
  if (!missing.empty()) make_once(programs, missing);
  return {static_cast<const void*>(this), [this](const void*) { made_.clear(); }};
}

// A rank finds what another rank has made, and maybe packed since, when it asks for it.
void WeightStore::make_once(const RankPrograms& programs, const std::vector<const Value*>& derived) {
  if (!rank_.device().uses_host_memory()) return make(programs, derived);
  std::string names;
  for (const Value* state : derived) names += names_.part_of(programs, state).str() + "\n";
  const auto turn = shared_->turn_of(names);
  const bool are_there = std::all_of(derived.begin(), derived.end(), [&](const Value* state) {
    return shared_->holds_any(names_.part_of(programs, state));
  });
  if (!are_there) return make(programs, derived);
  for (const Value* state : derived) initialized_.insert(names_.part_of(programs, state));
}

void WeightStore::make(const RankPrograms& programs, const std::vector<const Value*>& derived) {
  std::set<std::string> names;
  for (const Value* state : derived) names.insert(state->name);
  InitResults results = run_init(programs, rank_, names);
  const LoadPeak now = held();
  note_load_peak({now.bytes + results.peak.bytes, now.own + results.peak.own, now.between + results.peak.own});
  for (const Value* state : derived) {
    const WeightPart& part = names_.part_of(programs, state);
    initialized_.insert(part);
    Tensor& made = made_[part] = std::move(results.values.at(state->name));
    shared_->put({part, kPlainForm}, made);
  }
}

// Hands over the result of init.
Tensor WeightStore::made(const RankPrograms& programs, const Value* derived) {
  const WeightPart& part = names_.part_of(programs, derived);
  if (!made_.contains(part)) {
    if (Tensor there = shared_->find({part, kPlainForm}); there.owner) return there;
    make(programs, {derived});
  }
  return std::move(made_.extract(part).mapped());
}

// All that the rank holds now, including results of init that have not been packed yet.
LoadPeak WeightStore::held() const {
  size_t all = rank_.state_bytes(), views = 0;
  for (const auto& [part, tensor] : made_) all += tensor.bytes;
  for (const auto& [part, shard] : shards_)
    if (shard.is_view) views += shard.tensor.bytes;
  return {all, all - views, all - views};
}

void WeightStore::note_load_peak(const LoadPeak& peak) {
  load_peak_.bytes = std::max(load_peak_.bytes, peak.bytes);
  load_peak_.own = std::max(load_peak_.own, peak.own);
  load_peak_.between = std::max(load_peak_.between, peak.between);
}

void WeightStore::note_packing(size_t bytes) {
  const LoadPeak now = held();
  note_load_peak({now.bytes + bytes, now.own + bytes, now.between});
}

void WeightStore::forget(const RankPrograms& programs) {
  const std::set<WeightPart> used = names_.forget(programs);
  std::erase_if(shards_, [&](const auto& entry) { return !used.contains(entry.first); });
  std::erase_if(resident_, [&](const auto& entry) { return !used.contains(entry.first); });
  std::erase_if(packed_, [&](const auto& entry) { return !used.contains(entry.first.part); });
  std::erase_if(initialized_, [&](const WeightPart& part) { return !used.contains(part); });
}

void WeightStore::abandon_memory() const {
  keep_for_good(shards_);
  keep_for_good(resident_);
}

size_t WeightStore::bytes() const {
  size_t sum = 0;
  for (const auto& [part, shard] : shards_) sum += shard.tensor.bytes;
  for (const auto& [part, tensor] : resident_) sum += tensor.bytes;
  for (const auto& [form, tensor] : packed_) sum += tensor.bytes;
  return sum;
}

std::map<WeightForm, size_t> WeightStore::own_bytes() const {
  std::map<WeightForm, size_t> own;
  for (const auto& [part, shard] : shards_)
    if (!shard.is_view) own[{part, kPlainForm}] = shard.tensor.bytes;
  for (const auto& [part, tensor] : resident_) own[{part, "on the device"}] = tensor.bytes;
  for (const auto& [form, tensor] : packed_) own[form] = tensor.bytes;
  return own;
}

}  // namespace tessera::runtime
