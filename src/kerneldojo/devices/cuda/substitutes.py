"""Launchers that launch one function in another's place, while they are told to: how a kernel is silenced unseen.

Triton launches through small C modules (`launchers`), and what it passes is a kernel's handle, which a candidate may
look at, keep, and compare. So it is not the handle that changes when a kernel becomes a no-op, but what a launcher
makes of it: while it is hushed it looks into a table before each launch, and else at one integer.
"""

from __future__ import annotations

LAUNCH = "cuLaunchKernelExHandle(&config, function, params, 0)"
BEFORE_LAUNCH = "static void _launch("
METHODS = "static PyMethodDef ModuleMethods[] = {"
"""Places in Triton's text, of 3.4 to 3.6 at least."""
MOST_SUBSTITUTES = 512
"""Of a process; a call of so many different kernels is silenced in a twin."""
METHODS_MADE = ("substitute", "hush")
_TABLE = f"""
static CUfunction substitutes[{MOST_SUBSTITUTES}][2];
static int num_substitutes = 0;
static int is_hushed = 0;

static inline CUfunction launched(CUfunction function) {{
  if (!is_hushed) return function;
  for (int i = 0; i < num_substitutes; ++i)
    if (substitutes[i][0] == function) return substitutes[i][1];
  return function;
}}

static PyObject* substitute(PyObject* self, PyObject* args) {{
  unsigned long long one, other;
  if (!PyArg_ParseTuple(args, "KK", &one, &other)) return NULL;
  if (num_substitutes == {MOST_SUBSTITUTES}) {{
    PyErr_SetString(PyExc_RuntimeError, "too many substitutes");
    return NULL;
  }}
  substitutes[num_substitutes][0] = (CUfunction)one;
  substitutes[num_substitutes][1] = (CUfunction)other;
  ++num_substitutes;
  Py_RETURN_NONE;
}}

static PyObject* hush(PyObject* self, PyObject* args) {{
  if (!PyArg_ParseTuple(args, "p", &is_hushed)) return NULL;
  Py_RETURN_NONE;
}}

"""


def with_substitutes(text: str) -> str:
    """Triton's text of a launcher, which has `substitute(handle, other)`, and `hush(whether)` for when that counts;
    unchanged where it is another version's."""
    if any(text.count(place) != 1 for place in (LAUNCH, BEFORE_LAUNCH, METHODS)):
        return text
    text = text.replace(LAUNCH, LAUNCH.replace("function", "launched(function)"))
    text = text.replace(BEFORE_LAUNCH, _TABLE + BEFORE_LAUNCH)
    made = "".join(f'\n  {{"{name}", {name}, METH_VARARGS, ""}},' for name in METHODS_MADE)
    return text.replace(METHODS, METHODS + made)
