// Stands in for torch/torch.h while the CUDA half of a candidate is built: see types.h beside this.
#pragma once

#include <torch/types.h>
