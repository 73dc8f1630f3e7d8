// Stands in for c10/core/ScalarType.h where a candidate's CUDA half needs no more of torch than to take tensors, make
// tensors and launch kernels, which is what most do: what kinds of elements, devices and layouts are called, as the
// torch that is installed says (brief.py). Of the elements themselves, half precision say, nothing is known.
#pragma once

#include <dojo_kinds.h>
