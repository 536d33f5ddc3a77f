#pragma once

#include "tessera/kernels/kernel.h"

/// Families that share a line of registry.h with another family, whose file adds their entries to its own.
namespace tessera::kernels {

std::vector<KernelEntry> batch_normalization_kernels();    // batch_normalization.cpp, with normalization
std::vector<KernelEntry> softmax_kernels();                // softmax.cpp, with normalization
std::vector<KernelEntry> channel_normalization_kernels();  // channel_normalization.cpp, with normalization
KernelEntry attention_gradient_kernel();                   // attention_gradient.cpp, with attention
std::vector<KernelEntry> rotary_kernels();                 // rotary.cpp, with attention

}  // namespace tessera::kernels
