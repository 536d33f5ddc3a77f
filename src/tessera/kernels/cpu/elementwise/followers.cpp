#include "tessera/kernels/cpu/elementwise/followers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

struct FollowerRow {
  std::string_view op_type;
  dnnl::algorithm algorithm;
  bool keeps_zero;
};

constexpr std::array<FollowerRow, 8> kFollowers = {{
    {"Relu", dnnl::algorithm::eltwise_relu, true},
    {"LeakyRelu", dnnl::algorithm::eltwise_relu, true},
    {"Gelu", dnnl::algorithm::eltwise_gelu_erf, true},
    {"Swish", dnnl::algorithm::eltwise_swish, true},
    {"Tanh", dnnl::algorithm::eltwise_tanh, true},
    {"Sigmoid", dnnl::algorithm::eltwise_logistic, false},
    {"Add", dnnl::algorithm::binary_add, true},
    {"Mul", dnnl::algorithm::binary_mul, true},
}};

const FollowerRow* follower_row(const Node& node) {
  if (!node.domain.empty() || node.outputs.size() != 1) return nullptr;
  auto row = std::find_if(kFollowers.begin(), kFollowers.end(),
                          [&](const FollowerRow& r) { return r.op_type == node.op_type; });
  return row == kFollowers.end() ? nullptr : &*row;
}

/// The root, then each follower in place.
class InTurn : public Kernel {
 public:
  InTurn(const PrepareContext& context, KernelFactory prepare_root) {
    PrepareContext root = context;
    root.followers.clear();
    const size_t own = root_operands(context);
    root.inputs.resize(own);
    root.known.resize(std::min(root.known.size(), own));
    root_operands_ = own;
    root_ = prepare_root(root);
    scratch_ = root_->scratch_bytes();
    for (const Follower& follower : context.followers) {
      const KernelEntry* entry = find_kernel(follower.node->op_type, follower.node->domain);
      check(entry != nullptr, "a follower has a kernel of its own");
      const TensorDesc stored{context.outputs[0].dtype, context.outputs[0].stored_dims()};
      PrepareContext step{*follower.node, {}, {stored}, {}, context.threads};
      for (int place : follower.operands) {
        step.inputs.push_back(place < 0 ? stored
                                        : TensorDesc{context.inputs[place].dtype, context.inputs[place].stored_dims()});
        step.known.push_back(nullptr);
      }
      steps_.push_back({entry->prepare(step), follower.operands});
      scratch_ = std::max(scratch_, steps_.back().kernel->scratch_bytes());
    }
  }

  size_t scratch_bytes() const override { return scratch_; }

  void run(const KernelArgs& args) override {
    root_->run({args.inputs.first(root_operands_), args.outputs, args.scratch});
    for (Step& step : steps_) {
      std::array<const void*, 2> operands;
      for (size_t i = 0; i < step.operands.size(); ++i)
        operands[i] = step.operands[i] < 0 ? args.outputs[0] : args.inputs[step.operands[i]];
      step.kernel->run({std::span(operands).first(step.operands.size()), args.outputs, args.scratch});
    }
  }

 private:
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<int> operands;
  };

  static size_t root_operands(const PrepareContext& context) {
    size_t first = context.inputs.size();
    for (const Follower& follower : context.followers)
      if (follower.other() >= 0) first = std::min(first, static_cast<size_t>(follower.other()));
    return first;
  }

  std::unique_ptr<Kernel> root_;
  size_t root_operands_ = 0;
  std::vector<Step> steps_;
  size_t scratch_ = 0;
};

}  // namespace

bool can_follow(const Node& node) {
  return follower_row(node) != nullptr;
}

bool takes_operand(const Node& follower) {
  return follower.op_type == "Add" || follower.op_type == "Mul";
}

bool keeps_zero(const Node& follower) {
  const FollowerRow* row = follower_row(follower);
  return row && row->keeps_zero;
}

std::vector<onednn::PostOp> post_ops(const std::vector<Follower>& followers,
                                     const std::function<onednn::Md(int)>& operand_layout) {
  std::vector<onednn::PostOp> ops;
  for (const Follower& follower : followers) {
    const Node& node = *follower.node;
    onednn::PostOp op{follower_row(node)->algorithm};
    if (node.op_type == "LeakyRelu") op.alpha = node.get_float("alpha", 0.01f);
    if (node.op_type == "Swish") op.alpha = node.get_float("alpha", 1);
    if (node.op_type == "Gelu" && node.get_string("approximate", "none") == "tanh")
      op.algorithm = dnnl::algorithm::eltwise_gelu_tanh;
    if (follower.other() >= 0) op.operand = operand_layout(follower.other());
    ops.push_back(op);
  }
  return ops;
}

std::unique_ptr<Kernel> run_in_turn(const PrepareContext& context, KernelFactory root) {
  return std::make_unique<InTurn>(context, root);
}

}  // namespace tessera::kernels
