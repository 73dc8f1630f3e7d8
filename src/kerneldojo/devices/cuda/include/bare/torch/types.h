// Stands in for torch/types.h where a candidate's CUDA half needs next to nothing of torch: see c10/core/ScalarType.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cfloat>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <dojo_functions.h>

#include "../../torch_names.h"
