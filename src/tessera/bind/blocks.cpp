#include "tessera/bind/blocks.h"

#include <algorithm>

namespace tessera::bind {
namespace {

using kernels::BlockUse;

// Operands and results of a loop have the same layout: all are in blocks, or none. Returns whether a value changed from
// blocks to row-major.
bool level(const NodeGroup& group, const BlockUse& use, std::set<const Value*>& blocked) {
  if (use.alike.empty()) return false;
  std::vector<const Value*> alike;
  for (const size_t i : use.alike) alike.push_back(group.inputs[i]);
  for (const Value* output : group.outputs)
    if (output) alike.push_back(output);
  if (std::all_of(alike.begin(), alike.end(), [&](const Value* value) { return blocked.contains(value); }))
    return false;
  bool changed = false;
  for (const Value* value : alike) changed |= blocked.erase(value) > 0;
  return changed;
}

}  // namespace

std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                              const kernels::TypeOf& type_of, const kernels::Library& library) {
  std::vector<BlockUse> uses;
  std::set<const Value*> blocked;
  for (const NodeGroup& group : groups) {
    uses.push_back(library.block_use(group, type_of));
    for (const Value* output : group.outputs)
      if (output && uses.back().gives && !kept.contains(output)) blocked.insert(output);
  }
  // If a reader does not support a value in blocks, the value is row-major, and so are all values that must have the
  // same layout.
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].inputs.size(); ++i)
        if (!uses[g].takes[i]) changed |= blocked.erase(groups[g].inputs[i]) > 0;
      changed |= level(groups[g], uses[g], blocked);
    }
  }
  std::map<const Value*, int64_t> blocks;
  for (const Value* value : blocked) blocks[value] = library.block_of(type_of(value));
  return blocks;
}

}  // namespace tessera::bind
