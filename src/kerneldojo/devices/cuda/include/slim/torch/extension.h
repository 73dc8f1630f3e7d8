// Stands in for torch/extension.h while a candidate is built: see types.h beside this.
#pragma once

#include <torch/types.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
