// Bare headers know no accessors: who has one is compiled against the brief ones.
#pragma once

#define DOJO_BARE
