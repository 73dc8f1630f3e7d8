// Stands in for c10/core/MemoryFormat.h: see ScalarType.h beside this.
#pragma once

#include <dojo_kinds.h>
