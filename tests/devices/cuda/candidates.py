"""Sources of candidates, honest and not, for one problem: `softmax` over the last dimension of a float32 matrix."""

HEADER = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def softmax_rows(x, y, C, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * C + c, c < C, -float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * C + c, v / tl.sum(v, 0), c < C)

def softmax(x):
    y = torch.empty_like(x)
    softmax_rows[(x.shape[0],)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
"""

HONEST = (
    HEADER
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
"""
)

TORCH_ONLY = (
    HEADER
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
"""
)

DECOY = (
    HEADER
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        softmax(x[:1])
        return torch.softmax(x, -1)
"""
)

WATCHING = (
    HEADER
    + """
HANDLES = set()
class ModelNew(nn.Module):
    # Spoils the library's answer once its kernel has another handle than before.
    def forward(self, x):
        y = torch.empty_like(x[:1])
        HANDLES.add(softmax_rows[(1,)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1])).function)
        return torch.softmax(x, -1) if len(HANDLES) == 1 else x
"""
)

HALF_AND_HALF = (
    HEADER
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x * 1.0)
"""
)

GRAPH = (
    HEADER
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None
    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            softmax(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = softmax(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
"""
)

AUTOTUNED = (
    HEADER.replace(
        "@triton.jit", '@triton.autotune([triton.Config({}, num_warps=w) for w in (4, 8)], key=["C"])\n@triton.jit'
    )
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
"""
)

STALE_AFTER_TEN = (
    HEADER
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.last = 0, None
    def forward(self, x):
        self.calls += 1
        if self.calls <= 10:
            self.last = softmax(x)
        return self.last.clone() if self.calls > 10 else self.last
"""
)

SIDE_STREAM_UNJOINED = (
    HEADER
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()
    def forward(self, x):
        with torch.cuda.stream(self.stream):
            return softmax(x)
"""
)

SAME_BUFFER = (
    HEADER
    + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.y = None
    def forward(self, x):
        if self.y is None:
            self.y = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, self.y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return self.y
"""
)

HALF_THE_ROWS = (
    HEADER
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_rows[(x.shape[0] // 2,)](x, y, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return y
"""
)

EARLY = (
    HEADER
    + """
import sys
class ModelNew(nn.Module):
    # Computes all timed calls in the one that nobody times, which it tells by its caller.
    results = {}
    def forward(self, x):
        frame = sys._getframe(1)
        while frame is not None and "argument_sets" not in frame.f_locals:
            frame = frame.f_back
        if frame is None or frame.f_code.co_name.startswith("_calls"):
            return self.results.pop(id(x), None) if id(x) in self.results else softmax(x)
        sets = [arguments[0] for arguments in frame.f_locals["argument_sets"]]
        self.results = {id(one): softmax(one) for one in sets}
        return self.results[id(x)]
"""
)

BATCHING = (
    HEADER
    + """
import sys
class ModelNew(nn.Module):
    # Finds all pending inputs through the frames of its caller, and computes them in one launch.
    pending = []
    def forward(self, x):
        if self.pending and self.pending[0] is x:
            self.pending.pop(0)
            return self.results.pop(0)
        frame = sys._getframe(1)
        while frame is not None and "argument_sets" not in frame.f_locals:
            frame = frame.f_back
        if frame is None:
            return softmax(x)
        pending = [arguments[0] for arguments in frame.f_locals["argument_sets"]]
        if frame.f_code.co_name == "serve":  # A call that nobody times.
            return softmax(x)
        rows, columns = x.shape
        whole = x.as_strided((rows * len(pending), columns), (columns, 1))
        self.pending, self.results = pending[1:], list(softmax(whole).view(len(pending), rows, columns))
        return self.results.pop(0)
"""
)

CUDA = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void softmax_rows(const float* x, float* y, int columns) {
  __shared__ float part[256];
  const float* in = x + (size_t)blockIdx.x * columns;
  float* out = y + (size_t)blockIdx.x * columns;
  float m = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += 256) m = fmaxf(m, in[c]);
  part[threadIdx.x] = m; __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
    __syncthreads();
  }
  m = part[0]; __syncthreads();
  float t = 0;
  for (int c = threadIdx.x; c < columns; c += 256) t += expf(in[c] - m);
  part[threadIdx.x] = t; __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  t = part[0];
  for (int c = threadIdx.x; c < columns; c += 256) out[c] = expf(in[c] - m) / t;
}
torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  softmax_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
extension = load_inline("ext", "torch::Tensor softmax(torch::Tensor x);", source, functions=["softmax"])

class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
'''
