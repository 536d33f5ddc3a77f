// Edits of communication: dropped, bypassed, done twice, inserted where it does not belong, or changed.
#include <algorithm>
#include <array>

#include "mutants/mutators.h"

namespace tessera::mutants {
namespace {

bool moves(const Site& site) {
  return communicates(site.node());
}
bool moves_through(const Site& site) {
  return communicates(site.node()) && has_operand(site.node()) && has_result(site.node());
}
bool is_recv(const Site& site) {
  return communicates(site.node()) && base_of(site.node()) == "Recv";
}

std::string drop(const Site& site, Random&) {
  const std::string what = label(site.node()) + " is dropped";
  const bool through = moves_through(site), receives = is_recv(site);
  std::string operand;
  if (through) operand = site.node().input(0);
  // The sent value replaces the received one.
  if (receives)
    for (const onnx::NodeProto& other : *site.scope.nodes)
      if (communicates(other) && base_of(other) == "Send") operand = other.input(0);
  if ((through || receives) && operand.empty()) return "";
  if (!unthread(site)) return "";
  if (through || receives)
    replace_by(site, operand);
  else
    site.scope.nodes->DeleteSubrange(site.index, 1);
  return what;
}

std::string bypass(const Site& site, Random&) {
  const onnx::NodeProto& node = site.node();
  if (is_output(site.scope, node.output(0))) return "";
  replace_uses(site.scope, node.output(0), node.input(0));
  return label(node) + " is bypassed";
}

// r = Where (index == k, operand, result).
std::string bypass_on_one_rank(const Site& site, Random& random) {
  if (site.in_function()) return "";
  const auto& axes = site.model.mesh.axes();
  const MeshAxis axis = axes[random.below(axes.size())];
  const auto k = static_cast<int64_t>(random.below(static_cast<size_t>(axis.size)));
  const std::string operand = site.node().input(0), what = label(site.node());
  const Interposed at = interpose(site, random.one_in(2));
  const std::string index = site.model.fresh("index"), number = site.model.fresh("k"), same = site.model.fresh("same");
  onnx::NodeProto axis_index, equal, where;
  axis_index.set_op_type("AxisIndex");
  axis_index.set_domain("tessera.comm");
  set_text(axis_index, "axis", axis.name);
  axis_index.add_output(index);
  equal.set_op_type("Equal");
  equal.add_input(index);
  equal.add_input(number);
  equal.add_output(same);
  where.set_op_type("Where");
  where.add_input(same);
  where.add_input(operand);
  where.add_input(at.from);
  where.add_output(at.to);
  int n = site.index;
  for (const onnx::NodeProto& added : {axis_index, constant(number, {k}, true), equal, where})
    insert_after(site.scope, n++, added);
  return what + " is bypassed at " + axis.name + "=" + std::to_string(k);
}

// y = AllReduce (p) becomes y = AllReduce (AllReduce (p)).
std::string twice(const Site& site, Random& random) {
  const std::string what = label(site.node()) + " is done twice";
  const Interposed at = interpose(site, random.one_in(2));
  onnx::NodeProto again = site.node();
  again.set_name("");
  again.set_input(0, at.from);
  again.set_output(0, at.to);
  insert_after(site.scope, site.index, again);
  return thread(site.model, site.scope, site.index + 1) ? what : "";
}

std::vector<std::string> some_axes(const Mesh& mesh, Random& random) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes())
    if (random.one_in(2)) axes.push_back(axis.name);
  if (axes.empty()) axes.push_back(mesh.axes()[random.below(mesh.axes().size())].name);
  return axes;
}

void set_texts(onnx::NodeProto& node, const std::string& name, const std::vector<std::string>& texts) {
  onnx::AttributeProto* found = attribute(node, name);
  if (!found) found = node.add_attribute();
  found->set_name(name);
  found->set_type(onnx::AttributeProto::STRINGS);
  found->clear_strings();
  for (const std::string& text : texts) found->add_strings(text);
}

void set_int(onnx::NodeProto& node, const std::string& name, int64_t value) {
  onnx::AttributeProto* found = attribute(node, name);
  if (!found) found = node.add_attribute();
  found->set_name(name);
  found->set_type(onnx::AttributeProto::INT);
  found->set_i(value);
}

std::string global_name(const EditedModel& model, const std::string& value) {
  for (const auto& info : model.proto.graph().value_info())
    if (info.name() == value)
      for (const auto& entry : info.metadata_props())
        if (entry.key() == "tessera.value") return entry.value();
  return value;
}

bool makes_floats(const Site& site) {
  return !site.in_function() && has_result(site.node()) && !communicates(site.node()) &&
         site.model.type_of(site.node().output(0)).starts_with("1[");
}

// A collective of another's form on a value that needs none.
std::string insert_one_of_a_kind(const Site& site, Random& random) {
  std::vector<onnx::NodeProto> kinds;
  for (const onnx::NodeProto& node : *site.scope.nodes)
    if (communicates(node) && has_operand(node) && has_result(node)) kinds.push_back(node);
  if (kinds.empty()) return "";
  onnx::NodeProto added = random.one_of(kinds);
  const std::string value = site.node().output(0);
  const Interposed at = interpose(site, random.one_in(2));
  added.set_name("");
  added.set_input(0, at.from);
  added.set_output(0, at.to);
  if (random.one_in(2)) set_text(added, "value", global_name(site.model, value));
  insert_after(site.scope, site.index, added);
  if (!thread(site.model, site.scope, site.index + 1)) return "";
  return added.op_type() + " is put after " + label(site.node());
}

// Broadcast, Permute or AllReduce, which keep the shape.
std::string insert_a_collective(const Site& site, Random& random) {
  if (site.model.form.lower == Lower::primitives) return "";
  onnx::NodeProto added;
  added.set_domain("tessera.comm");
  const std::vector<std::string> axes = some_axes(site.model.mesh, random);
  int64_t members = 1;
  for (const MeshAxis& axis : site.model.mesh.axes())
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) members *= axis.size;
  set_texts(added, "axes", axes);
  set_text(added, "value", global_name(site.model, site.node().output(0)));
  switch (random.below(3)) {
    case 0:
      added.set_op_type("Broadcast");
      set_int(added, "root", static_cast<int64_t>(random.below(static_cast<size_t>(members))));
      break;
    case 1: {
      added.set_op_type("Permute");
      onnx::AttributeProto* targets = added.add_attribute();
      targets->set_name("targets");
      targets->set_type(onnx::AttributeProto::INTS);
      for (int64_t member = 0; member < members; ++member) targets->add_ints((member + 1) % members);
      break;
    }
    default:
      added.set_op_type("AllReduce");
      set_text(added, "reduction", random.one_in(2) ? "sum" : "max");
  }
  const std::string what = added.op_type() + " over " + axes[0] + " is put after " + label(site.node());
  const Interposed at = interpose(site, random.one_in(2));
  added.add_input(at.from);
  added.add_output(at.to);
  if (site.model.has_tokens()) {
    added.add_input("");
    added.add_output("");
  }
  insert_after(site.scope, site.index, added);
  return thread(site.model, site.scope, site.index + 1) ? what : "";
}

// --- told to do something else

std::string change_reduction(const Site& site, Random& random) {
  onnx::AttributeProto* reduction = attribute(site.node(), "reduction");
  if (!reduction) return "";
  constexpr std::array<const char*, 4> kAll = {"sum", "max", "min", "mean"};
  const std::string other = kAll[random.below(kAll.size())];
  if (reduction->s() == other) return "";
  reduction->set_s(other);
  return label(site.node()) + " reduces by " + other;
}

std::string change_axes(const Site& site, Random& random) {
  onnx::AttributeProto* axes = attribute(site.node(), "axes");
  if (!axes) return "";
  const std::vector<std::string> others = some_axes(site.model.mesh, random);
  if (std::equal(axes->strings().begin(), axes->strings().end(), others.begin(), others.end())) return "";
  set_texts(site.node(), "axes", others);
  return label(site.node()) + " runs over other axes";
}

std::string change_number(const Site& site, Random& random) {
  std::vector<onnx::AttributeProto*> numbers;
  for (const char* name : {"dim", "split_dim", "concat_dim", "root", "dtype", "offset"})
    if (auto* found = attribute(site.node(), name); found && found->ref_attr_name().empty()) numbers.push_back(found);
  if (numbers.empty()) return "";
  onnx::AttributeProto* number = random.one_of(numbers);
  number->set_i(number->i() > 0 && random.one_in(2) ? number->i() - 1 : number->i() + 1);
  return label(site.node()) + " has " + number->name() + " = " + std::to_string(number->i());
}

std::string change_targets(const Site& site, Random& random) {
  onnx::AttributeProto* targets = attribute(site.node(), "targets");
  if (!targets || targets->ints_size() < 2) return "";
  const auto a = static_cast<int>(random.below(static_cast<size_t>(targets->ints_size())));
  const int b = (a + 1) % targets->ints_size();
  if (targets->ints(a) == targets->ints(b)) return "";
  targets->mutable_ints()->SwapElements(a, b);
  return label(site.node()) + " sends to others";
}

std::string change_extent(const Site& site, Random& random) {
  std::vector<onnx::AttributeProto*> extents;
  for (const char* name : {"extent", "split_extent", "concat_extent"})
    if (auto* found = attribute(site.node(), name)) extents.push_back(found);
  if (extents.empty()) return "";
  onnx::AttributeProto* extent = random.one_of(extents);
  if (random.one_in(3))
    extent->set_s(odd_extent(random));
  else
    extent->set_s(random.one_in(2) ? extent->s() + " + 1" : "max(0, " + extent->s() + " - 1)");
  return label(site.node()) + " says " + extent->name() + " = " + extent->s();
}

std::string change_words(const Site& site, Random& random) {
  onnx::AttributeProto* word = attribute(site.node(), random.one_in(3) ? "step" : "value");
  if (!word || !word->ref_attr_name().empty()) return "";
  std::vector<std::string> others;
  for (const Site& other : sites(site.model))
    if (communicates(other.node()))
      if (auto* its = attribute(other.node(), word->name()); its && its->s() != word->s() && !its->s().empty())
        others.push_back(its->s());
  if (others.empty()) return "";
  word->set_s(random.one_of(others));
  return label(site.node()) + " says that its " + word->name() + " is '" + word->s() + "'";
}

std::string become_another(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  const std::string before = label(node);
  std::vector<std::string> others;
  if (base_of(node) == node.op_type()) {
    if (attribute(node, "dim"))
      others = {"AllGather", "ReduceScatter", "Gather", "Scatter"};
    else
      others = {"AllReduce", "Broadcast", "Reduce", "Permute"};
  } else {
    for (const onnx::FunctionProto& function : site.model.proto.functions())
      for (const Site& other : sites(site.model))
        if (other.node().op_type() == function.name() && communicates(other.node()) &&
            other.node().input_size() == node.input_size())
          others.push_back(function.name());
  }
  std::erase(others, node.op_type());
  if (others.empty()) return "";
  node.set_op_type(random.one_of(others));
  if (base_of(node) == node.op_type()) {
    for (const char* name : {"targets", "root", "reduction"})
      for (int a = node.attribute_size() - 1; a >= 0; --a)
        if (node.attribute(a).name() == name) node.mutable_attribute()->DeleteSubrange(a, 1);
    if (node.op_type() == "AllReduce" || node.op_type() == "Reduce" || node.op_type() == "ReduceScatter")
      set_text(node, "reduction", "sum");
    if (node.op_type() == "Broadcast" || node.op_type() == "Reduce" || node.op_type() == "Gather" ||
        node.op_type() == "Scatter")
      set_int(node, "root", 0);
    if (node.op_type() == "Permute") {
      onnx::AttributeProto* targets = node.add_attribute();
      targets->set_name("targets");
      targets->set_type(onnx::AttributeProto::INTS);
      int64_t members = 1;
      for (const MeshAxis& axis : site.model.mesh.axes())
        for (const std::string& name : attribute(node, "axes")->strings())
          if (axis.name == name) members *= axis.size;
      for (int64_t member = 0; member < members; ++member) targets->add_ints((member + 1) % members);
    }
  }
  return before + " becomes " + node.op_type();
}

// Two communications of one scope exchange their operands, their results, or their places.
std::string exchange(const Site& site, Random& random) {
  std::vector<int> others;
  for (int n = 0; n < site.scope.nodes->size(); ++n)
    if (n != site.index && communicates(site.scope.nodes->Get(n))) others.push_back(n);
  if (others.empty()) return "";
  const int n = random.one_of(others);
  onnx::NodeProto &a = site.node(), &b = *site.scope.nodes->Mutable(n);
  const std::string both = label(a) + " and " + label(b);
  switch (random.below(4)) {
    case 0:
      if (!has_operand(a) || !has_operand(b)) return "";
      std::swap(*a.mutable_input(0), *b.mutable_input(0));
      return both + " exchange operands";
    case 1:
      if (!has_result(a) || !has_result(b)) return "";
      std::swap(*a.mutable_output(0), *b.mutable_output(0));
      return both + " exchange results";
    case 2:
      if (!site.model.has_tokens()) return "";
      std::swap(*a.mutable_input()->rbegin(), *b.mutable_input()->rbegin());
      std::swap(*a.mutable_output()->rbegin(), *b.mutable_output()->rbegin());
      return both + " exchange tokens";
    default:
      site.scope.nodes->SwapElements(site.index, n);
      return both + " exchange places";
  }
}

std::string break_the_chain(const Site& site, Random& random) {
  if (!site.model.has_tokens()) return "";
  onnx::NodeProto& node = site.node();
  std::string& taken = *node.mutable_input()->rbegin();
  const std::string before = taken, who = label(node);
  switch (random.below(3)) {
    case 0:
      taken = "tessera.token";
      break;
    case 1: {
      std::vector<std::string> others;
      for (const onnx::NodeProto& other : *site.scope.nodes)
        if (communicates(other)) others.push_back(*other.output().rbegin());
      taken = random.one_of(others);
      break;
    }
    default:
      node.mutable_input()->RemoveLast();
      node.mutable_output()->RemoveLast();
      return who + " has no tokens";
  }
  return taken == before ? "" : who + " takes another's token";
}

// y = AllReduce (x), y of one rank only by what the call says is its number.
std::string lie_about_the_rank(const Site& site, Random& random) {
  onnx::NodeProto& node = site.node();
  if (site.in_function() || base_of(node) == node.op_type()) return "";
  const int at = node.input_size() - 1 - (site.model.has_tokens() ? 1 : 0);
  const std::string number = site.model.fresh("number");
  node.set_input(at, number);
  const std::string who = label(node);
  const auto ranks = static_cast<size_t>(site.model.mesh.size());
  const auto rank = static_cast<int64_t>(random.below(ranks));
  insert_after(site.scope, site.index, constant(number, {rank}, true));
  site.scope.nodes->SwapElements(site.index, site.index + 1);
  return who + " is told that it runs on rank " + std::to_string(rank);
}

}  // namespace

std::string odd_extent(Random& random) {
  constexpr std::array<const char*, 8> kExtents = {
      "4*@nowhere", "nothing", "floordiv(4, 0)", "-3", "4 +", "", "mod(@tp, @dp)", "9223372036854775807*batch"};
  return kExtents[random.below(kExtents.size())];
}

std::vector<Mutator> communication_mutators() {
  return {
      {"drop a communication", moves, drop},
      {"bypass a communication", moves_through, bypass},
      {"bypass a communication on one rank", moves_through, bypass_on_one_rank},
      {"communicate twice", moves_through, twice},
      {"insert a communication like another", makes_floats, insert_one_of_a_kind},
      {"insert a collective", makes_floats, insert_a_collective},
      {"change a reduction", moves, change_reduction},
      {"change a group", moves, change_axes},
      {"change a number of a communication", moves, change_number},
      {"change targets", moves, change_targets},
      {"change an extent of blocks", moves, change_extent},
      {"change what is said to move", moves, change_words},
      {"change the kind of a communication", moves, become_another},
      {"exchange two communications", moves, exchange},
      {"break the chain of tokens", moves, break_the_chain},
      {"lie about the rank", moves, lie_about_the_rank},
  };
}

}  // namespace tessera::mutants
