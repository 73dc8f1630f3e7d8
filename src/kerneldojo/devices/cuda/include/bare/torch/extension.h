// Stands in for torch/extension.h: see types.h beside this, and for the C++ half dojo_bindings.h.
#pragma once

#include <torch/types.h>
#ifndef __CUDACC__
#include "../../bindings.h"
#endif
