// Bare headers know nothing that depends on the type of elements: who dispatches is compiled against the brief ones.
#pragma once
