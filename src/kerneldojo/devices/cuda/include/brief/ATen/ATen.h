// Stands in for ATen/ATen.h while the CUDA half of a candidate is built: see torch/types.h.
#pragma once

#include <torch/types.h>
