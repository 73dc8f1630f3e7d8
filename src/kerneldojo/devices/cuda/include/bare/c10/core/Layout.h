// Stands in for c10/core/Layout.h: see ScalarType.h beside this.
#pragma once

#include <dojo_kinds.h>
