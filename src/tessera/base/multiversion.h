#pragma once

/// TESSERA_MULTIVERSION before a function compiles it for several levels of x86-64 and picks the best that the machine
/// has when the program starts. A function cannot stand in for an attribute, hence the macro. The versions give the
/// same bits: the build contracts no multiplication and addition into one rounding (-ffp-contract=off). Use it in
/// unnamed namespaces only. Sanitizers do not survive the early choice, so there the baseline runs.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TESSERA_MULTIVERSION __attribute__((flatten, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TESSERA_MULTIVERSION
#endif
