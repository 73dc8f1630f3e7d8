// Stands in for torch/types.h while a candidate is built: the tensor class, the usual factories and the dispatch
// macros, a small part of what the whole header declares and a fraction of its compile time. Everything here means
// what it means there. A source that needs more fails to compile against this and is then compiled against torch's own
// header, so that this can never be why a candidate is refused.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#ifndef AT_PER_OPERATOR_HEADERS  // Or it would bring all functions that torch has.
#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#ifdef DOJO_INDEXES
#include <ATen/TensorIndexing.h>
#endif
#undef AT_PER_OPERATOR_HEADERS
#endif
#ifdef DOJO_LISTS  // The source mentions them; they take as long as all else here.
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#endif

#include <optional>
#include <tuple>
#include <vector>

#include "../../torch_names.h"
