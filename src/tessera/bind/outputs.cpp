#include "tessera/bind/frame.h"
#include "tessera/bind/traits.h"

/// How this rank's parts of the outputs get into the caller's whole tensors.
namespace tessera::bind {

Box Binding::box(const Value* value) const {
  return spmd::held_part(program_, value, rank_->coordinates(), symbols_);
}

// Bytes of the whole before the first of a contiguous part.
size_t Binding::skip_of(const Box& part, const Value* value) {
  return bytes_of(value->dtype(), part.count() ? part.first() : 0);
}

// Bytes of a view's base before the view; none of a view without elements, whose base may be as empty.
size_t Binding::skip_of(const Alias& view, const Value* value) const {
  return bytes_of(value->dtype(), plain_desc(value).count() ? view.offset : 0);
}

bool Binding::writes(const Value* value) const {
  return spmd::writes_part(program_, value, rank_->coordinates());
}

// A result that is one piece of an output is made where the output lies, if this rank is the one that writes it.
void Binding::place_outputs() {
  if (options_.keep_all || !rank_->device().uses_host_memory()) return;
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Value* value = program_.outputs[i].value;
    if (!value) continue;  // it lives elsewhere
    const Value* root = home(value);
    if (root->kind != ValueKind::result || frame_->direct.contains(root) || !writes(value)) continue;
    if (flow::is(*root->producer, "Carry")) continue;  // it changes its buffer
    const Box part = box(value);
    if (!part.contiguous()) continue;
    frame_->direct[root] = {Where::output, i, nullptr, skip_of(part, value)};
  }
}

// The other results are copied there after the last action.
void Binding::copy_outputs() {
  machine_.outputs.clear();
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Value* value = program_.outputs[i].value;
    if (!value || !writes(value)) continue;
    const Location& made = *located(value);
    if (made.where == Where::output && made.index == i) continue;
    CopiedBox part(box(value), value->dtype());
    HostCopy copy{.port = i, .place = made, .box = std::move(part.box), .element = part.unit};
    copy.bytes = static_cast<size_t>(copy.box.count()) * copy.element;
    copy.staged = is_staged(copy.box);
    machine_.outputs.push_back(std::move(copy));
  }
}

}  // namespace tessera::bind
