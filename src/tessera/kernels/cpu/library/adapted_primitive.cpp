#include "tessera/kernels/cpu/library/adapted_primitive.h"

#include <array>

namespace tessera::kernels::onednn {
namespace {

std::vector<Primitive::Argument> as_wanted(const std::vector<AdaptedPrimitive::Argument>& arguments) {
  std::vector<Primitive::Argument> wanted;
  for (const auto& argument : arguments) wanted.push_back({argument.id, argument.wanted});
  return wanted;
}

}  // namespace

AdaptedPrimitive::AdaptedPrimitive(const dnnl::primitive& primitive, const Md& scratchpad,
                                   const std::vector<Argument>& arguments, int threads)
    : primitive_(primitive, scratchpad, as_wanted(arguments), threads), addresses_(arguments.size()) {
  for (const Argument& argument : arguments) {
    const bool result = &argument == &arguments.back();
    Adaption adaption{result ? reorder(argument.wanted, argument.given, threads)
                             : reorder(argument.given, argument.wanted, threads)};
    if (adaption.reorder) {
      adaption.at = plan_.add(argument.wanted.get_size());
      adaption.scratch_at = plan_.add(adaption.reorder->scratch_bytes());
    }
    adaptions_.push_back(std::move(adaption));
  }
  scratch_at_ = plan_.add(primitive_.scratch_bytes());
}

void AdaptedPrimitive::run(std::span<const void* const> addresses, void* scratch) {
  const size_t result = adaptions_.size() - 1;
  for (size_t i = 0; i < adaptions_.size(); ++i) {
    const Adaption& adaption = adaptions_[i];
    addresses_[i] = adaption.reorder ? scratch_at(scratch, adaption.at) : addresses[i];
    if (adaption.reorder && i != result)
      adaption.reorder->run(std::array{addresses[i], addresses_[i]}, scratch_at(scratch, adaption.scratch_at));
  }
  primitive_.run(addresses_, scratch_at(scratch, scratch_at_));
  if (const Adaption& adaption = adaptions_[result]; adaption.reorder)
    adaption.reorder->run(std::array{addresses_[result], addresses[result]}, scratch_at(scratch, adaption.scratch_at));
}

}  // namespace tessera::kernels::onednn
