#include "tessera/kernels/cpu/elementwise/group.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <map>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/broadcast.h"
#include "tessera/kernels/cpu/elementwise/parts.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/quantized/sum_of_codes.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kPiece = 1024;      // elements: the operands and results of ten nodes stay in 48 KiB of float32
constexpr int64_t kLine = 64;         // bytes that memory delivers at once
constexpr int64_t kShortestRow = 64;  // a pass over fewer elements costs more to begin than to run

Broadcast plan_of(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands) {
  std::vector<View> views;
  for (const TensorDesc& operand : operands) views.push_back(operand.present() ? view_of(operand) : View{});
  return Broadcast(root, result, views);
}

class ElementwiseGroup : public Kernel {
 public:
  explicit ElementwiseGroup(const PrepareContext& context)
      : plan_(plan_of(context.node, context.outputs[0].dims, context.inputs)) {
    std::vector<jit::Chain::Operand> operands;
    for (size_t i = 0; i < context.inputs.size(); ++i) {
      const TensorDesc& input = context.inputs[i];
      element_bytes_.push_back(input.present() ? bytes_of(input.dtype, 1) : 0);
      operands.push_back({input.dtype, plan_.fixed(i)});
    }
    std::vector<int> root(context.node.inputs.size());
    for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<int>(i);
    add_member(context, {&context.node, root});
    for (const Follower& follower : context.followers) add_member(context, follower);
    parts_ = parts_of(members_, operands);
    work_ = plan_.count() * static_cast<int64_t>(members_.size());
    threads_ = most_team_for(work_, context.threads);
    if (!is_one_function()) prepare_pieces(context);
  }

  size_t scratch_bytes() const override { return own_bytes_ * static_cast<size_t>(threads_); }

  void run(const KernelArgs& args) override {
    if (plan_.count() == 0) return;
    if (is_one_function())
      for_ranges(plan_.count(), work_, threads_, [&](int64_t begin, int64_t end) {
        plan_.walk(begin, end, [&](const int64_t* offsets, int64_t first, int64_t count) {
          run_part(parts_[0], nullptr, args, {offsets, first, count, nullptr});
        });
      });
    else
      run_pieces(args);
  }

 private:
  using Kernels = std::vector<std::unique_ptr<Kernel>>;  // of the parts; null: a function
  static constexpr size_t most_operands = Broadcast::max_operands;

  // An operand whose elements go by with the result's.
  struct Stream {
    size_t operand;
    int64_t share;  // bytes of a piece that each part asks for
  };

  // Elements of a row.
  struct Stretch {
    const int64_t* offsets;  // of the operands
    int64_t first, count;    // of the results
    std::byte* own;          // the thread's scratch memory
  };

  // Then no result needs a place of its own, and rows need no pieces.
  bool is_one_function() const { return parts_.size() == 1 && parts_[0].function; }

  void add_member(const PrepareContext& context, const Follower& node) {
    const size_t result = result_of_member(members_.size(), context.followers.size() + 1);
    const bool stored = context.has_output(result);
    const DType dtype = stored ? context.outputs[result].dtype : node.node->outputs[0]->dtype();
    check(!stored || context.outputs[result].dims == context.outputs[0].dims, "a group's results have equal extents");
    members_.push_back({node.node, node.operands, dtype, stored ? static_cast<int>(result) : -1});
  }

  void prepare_pieces(const PrepareContext& context) {
    piece_ = std::min(kPiece, plan_.row());
    place_results();
    pieces_ = plan_.row() == 0 ? 0 : (plan_.row() + piece_ - 1) / piece_;
    whole_ = prepare(context, piece_);
    rest_ = plan_.row() - (pieces_ - 1) * piece_;
    if (pieces_ > 1 && rest_ != piece_) last_ = prepare(context, rest_);
    own_bytes_ = results_.bytes() + part_scratch_;
    const auto parts = static_cast<int64_t>(parts_.size());
    for (size_t i = 0; i < element_bytes_.size(); ++i)
      if (element_bytes_[i] > 0 && !plan_.fixed(i))
        streams_.push_back({i, (piece_ * element_bytes_[i] / parts + kLine - 1) / kLine * kLine});
  }

  // The places of the results that parts give to later ones; a place is reused after its last reader.
  void place_results() {
    int64_t widest = 1;
    for (const GroupMember& member : members_) widest = std::max(widest, element_bytes(member));
    std::vector<size_t> last_reader(members_.size(), 0);  // parts
    for (size_t p = 0; p < parts_.size(); ++p)
      for (int place : parts_[p].operands)
        if (place < 0) last_reader[~place] = p;
    places_.resize(members_.size());
    std::vector<std::pair<size_t, size_t>> places;  // offset, and the last reader of the result there
    for (size_t p = 0; p < parts_.size(); ++p)
      for (size_t m : parts_[p].results) {
        if (members_[m].stored >= 0) continue;
        auto free = std::find_if(places.begin(), places.end(), [&](const auto& place) { return place.second < p; });
        if (free == places.end())
          free = places.insert(places.end(), {results_.add(static_cast<size_t>(piece_ * widest)), 0});
        free->second = std::max(last_reader[m], p);
        places_[m] = free->first;
      }
  }

  /// Kernels of the parts that are not functions, for `count` elements of a row.
  Kernels prepare(const PrepareContext& context, int64_t count) {
    Kernels kernels;
    for (const GroupPart& part : parts_) {
      kernels.push_back(part.function ? nullptr : prepare(context, members_[part.begin], count));
      if (kernels.back()) part_scratch_ = std::max(part_scratch_, (kernels.back()->scratch_bytes() + 63) / 64 * 64);
    }
    return kernels;
  }

  std::unique_ptr<Kernel> prepare(const PrepareContext& context, const GroupMember& member, int64_t count) const {
    PrepareContext step{*member.node, {}, {}, {}, 1};
    for (int place : member.operands) {
      const DType dtype = place < 0 ? members_[~place].dtype : context.inputs[place].dtype;
      const bool one = place >= 0 && plan_.fixed(place);
      check(!one || context.inputs[place].count() < context.outputs[0].count() || plan_.row() == 1,
            "an operand that is repeated along a row is smaller than the result");
      step.inputs.push_back({dtype, one || dtype == DType::undefined ? Dims{} : Dims{count}});
      step.known.push_back(one && context.inputs[place].count() == 1 ? context.known[place] : nullptr);
    }
    step.outputs = {{member.dtype, {count}}};
    const KernelEntry* entry = find_kernel(member.node->op_type, member.node->domain);
    check(entry && entry->elementwise && step.inputs.size() <= most_operands, "a group's node is element-wise");
    return entry->prepare(step);
  }

  void run_pieces(const KernelArgs& args) const {
    const int64_t count = plan_.count() / plan_.row() * pieces_;
    for_ranges(count, work_, threads_, [&](int64_t begin, int64_t end) {
      std::byte* own = scratch_at(args.scratch, static_cast<size_t>(omp_get_thread_num()) * own_bytes_);
      for (int64_t at = begin; at < end; ++at) {
        const int64_t piece = at % pieces_, first = at / pieces_ * plan_.row() + piece * piece_;
        const bool is_last = piece + 1 == pieces_;
        auto& kernels = is_last && !last_.empty() ? last_ : whole_;
        plan_.walk(first, first + (is_last ? rest_ : piece_), [&](const int64_t* offsets, int64_t, int64_t elements) {
          for (size_t p = 0; p < parts_.size(); ++p) {
            fetch_ahead(args, offsets, p);
            run_part(parts_[p], kernels[p].get(), args, {offsets, first, elements, own});
          }
        });
      }
    });
  }

  void run_part(const GroupPart& part, Kernel* kernel, const KernelArgs& args, const Stretch& stretch) const {
    const auto result_of = [&](size_t m) {
      const GroupMember& member = members_[m];
      return member.stored < 0 ? stretch.own + places_[m]
                               : args.out<std::byte>(member.stored) + stretch.first * element_bytes(member);
    };
    std::array<const void*, most_operands> operands;
    for (size_t i = 0; i < part.operands.size(); ++i) {
      const int place = part.operands[i];
      if (place < 0)
        operands[i] = result_of(~place);
      else
        operands[i] =
            args.inputs[place] ? args.in<std::byte>(place) + stretch.offsets[place] * element_bytes_[place] : nullptr;
    }
    std::array<void*, most_operands> results;
    for (size_t i = 0; i < part.results.size(); ++i) results[i] = result_of(part.results[i]);
    if (part.function)
      part.function->run(operands.data(), results.data(), stretch.count);
    else
      kernel->run({std::span(operands).first(part.operands.size()), std::span(results).first(1),
                   stretch.own + results_.bytes()});
  }

  // Asks for a share of what the next piece of the row reads, so that memory delivers it while this one is computed.
  void fetch_ahead(const KernelArgs& args, const int64_t* offsets, size_t part) const {
    for (const Stream& stream : streams_) {
      const std::byte* next = args.in<std::byte>(stream.operand) +
                              (offsets[stream.operand] + piece_) * element_bytes_[stream.operand] +
                              static_cast<int64_t>(part) * stream.share;
      for (int64_t at = 0; at < stream.share; at += kLine) __builtin_prefetch(next + at, 0, 2);
    }
  }

  static int64_t element_bytes(const GroupMember& member) { return static_cast<int64_t>(bytes_of(member.dtype, 1)); }

  Broadcast plan_;
  int64_t work_ = 0;
  int threads_ = 1;
  std::vector<int64_t> element_bytes_;  // of each operand
  std::vector<GroupMember> members_;
  std::vector<GroupPart> parts_;
  std::vector<Stream> streams_;
  std::vector<size_t> places_;  // in scratch memory, of members' results that are not stored
  ScratchPlan results_;
  size_t part_scratch_ = 0, own_bytes_ = 0;
  int64_t piece_ = 0, pieces_ = 0, rest_ = 0;  // elements of a row's pieces, their number, elements of the last one
  Kernels whole_, last_;
};

// QuantizeLinear and DequantizeLinear have a scale for all elements, or lists that do not broadcast as numpy's do.
bool has_one_scale(const Node& node) {
  if (!node.domain.empty() || (!node.is("QuantizeLinear") && !node.is("DequantizeLinear"))) return true;
  const auto is_one = [](const Value* value) {
    return !value || (value->rank() <= 1 && product(value->shape()).is(1));
  };
  return is_one(node.inputs[1]) && is_one(node.input(2)) && node.outputs[0]->rank() > 1;
}

}  // namespace

bool can_group(const Node& node) {
  const KernelEntry* entry = find_kernel(node.op_type, node.domain);
  const auto in_bytes = [](const Value* value) { return !value || bits_of(value->dtype()) % 8 == 0; };
  return entry && entry->elementwise && node.outputs.size() == 1 && node.inputs.size() <= Broadcast::max_operands &&
         has_one_scale(node) && in_bytes(node.outputs[0]) &&
         std::all_of(node.inputs.begin(), node.inputs.end(), in_bytes);
}

bool has_long_rows(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands) {
  if (operands.size() > Broadcast::max_operands) return false;
  const Broadcast plan = plan_of(root, result, operands);
  return plan.count() > 0 && plan.in_rows() && (plan.row() >= kShortestRow || plan.row() == plan.count());
}

std::unique_ptr<Kernel> elementwise_group(const PrepareContext& context) {
  if (auto sum = sum_of_codes(context)) return sum;
  return std::make_unique<ElementwiseGroup>(context);
}

}  // namespace tessera::kernels
