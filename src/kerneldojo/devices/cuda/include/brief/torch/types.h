// Stands in for torch/types.h while the CUDA half of a candidate is built: the tensor class and the usual factories,
// declared and nothing more. What they do is in an object that the judge has compiled once (brief.py), from torch's own
// headers. Everything here means what it means there: each declaration is torch's own, and what is listed under a name
// is all of torch's overloads that a call could mean. A source that needs more fails to compile against this, and is
// then compiled against the slim headers, so that this can never be why a candidate is refused.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <dojo_functions.h>

#include "../../torch_names.h"
