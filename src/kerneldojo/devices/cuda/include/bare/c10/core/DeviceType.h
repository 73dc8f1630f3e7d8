// Stands in for c10/core/DeviceType.h: see ScalarType.h beside this.
#pragma once

#include <dojo_kinds.h>
