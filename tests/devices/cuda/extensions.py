"""Sources of extensions, for tests of headers that they are compiled against, and how what is built is looked into."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kerneldojo.devices.cuda import toolchain
from kerneldojo.devices.cuda.precompiled import Precompiled, Precompiler
from kerneldojo.devices.cuda.shelf import Shelf


def names(path: Path, *options: str) -> set[str]:
    """Symbols of an object or a library, as `nm` tells."""
    told = subprocess.run(["nm", *options, str(path)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in told.splitlines() if line.strip()}


def shared_shelf(folders: pytest.TempPathFactory) -> Shelf:
    """Of all who test at once."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    return Shelf(_shared(folders) / "kept", toolchain.find(capability))


def precompiled(folders: pytest.TempPathFactory) -> Precompiled:
    """All that the judge makes, for the GPU that is here or one that is usual; made once for all who test at once."""
    shared, shelf = _shared(folders), shared_shelf(folders)
    place = shared / "precompiled"
    with (shared / "precompiled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            compiler = Precompiler(shelf.tools, shared, shelf)
            compiler.wait()
            place.symlink_to(compiler.made.folder)
    return Precompiled(place.resolve())


def _shared(folders: pytest.TempPathFactory) -> Path:
    return folders.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else folders.getbasetemp()


def loaded(name: str, library: Path) -> ModuleType:
    """An extension, imported."""
    specification = importlib.util.spec_from_file_location(name, library)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


BINDINGS = """#include <torch/extension.h>
{declarations}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bindings} }}
"""

ON_HOST = """#include <torch/extension.h>
#include <sstream>
std::string describe(torch::Tensor x) {
  std::ostringstream text;
  text << x.dim() << " " << x.sizes() << " " << x.strides() << " " << x.numel() << " " << x.nbytes() << " "
       << x.element_size() << " " << x.scalar_type() << " " << x.device() << " " << x.is_contiguous() << x.is_cuda()
       << x.is_floating_point() << x.defined() << " " << x.size(-1) << " " << x.stride(0) << " " << x.storage_offset()
       << " " << (x.dtype() == torch::kFloat32);
  return text.str();
}
torch::Tensor made(torch::Tensor x, int64_t n) {
  torch::Tensor none, y = torch::empty({n, 2}, x.options().dtype(torch::kFloat64));
  if (none.defined()) return none;
  y.zero_();
  none = y;                      // Two own it now.
  auto z = std::move(y);
  z.fill_(3).select(0, 0).copy_(torch::ones({2}));
  at::Tensor full = torch::full({1, 2}, 7.5, torch::TensorOptions().dtype(torch::kFloat64));
  z.narrow(0, 1, 1).copy_(full);
  if (!none.is_same(z)) throw std::runtime_error("not the same");
  std::optional<at::Tensor> bias;
  auto product = torch::linear(z, torch::ones({2, 2}, z.options()), bias);
  return product.to(x.dtype()).transpose(0, 1).contiguous().view({-1}).to(torch::kFloat32);
}
std::vector<torch::Tensor> twice(const torch::Tensor& x) { return {x, x.clone()}; }
double corner(torch::Tensor x) {
  auto a = x.accessor<float, 2>();
  return a[0][1] + x.data_ptr<float>()[0] + x.select(0, 1).select(0, 0).item<float>();
}
double refused(torch::Tensor x) { TORCH_CHECK(x.dim() == 7, "seven, not ", x.dim()); return 0; }
#define BOTH_AND_SCALARS(sign) x sign y, x sign n, n sign x,
std::vector<torch::Tensor> operated(torch::Tensor x, at::Tensor y, int64_t n) {
  return {BOTH_AND_SCALARS(+) BOTH_AND_SCALARS(-) BOTH_AND_SCALARS(*) BOTH_AND_SCALARS(%)
          BOTH_AND_SCALARS(&) BOTH_AND_SCALARS(|) BOTH_AND_SCALARS(^) BOTH_AND_SCALARS(<) BOTH_AND_SCALARS(<=)
          BOTH_AND_SCALARS(>) BOTH_AND_SCALARS(>=) BOTH_AND_SCALARS(==) BOTH_AND_SCALARS(!=) -x, ~x, x[-1], x[y[0][1]],
          x[torch::Scalar(0)], 1.5f - (x + 0.5), x / y, x / 2.5, 2 / (x + 0.5)};
}
std::vector<torch::Tensor> changed(torch::Tensor x, const torch::Tensor& y) {
  auto z = x.clone(), whole = y.clone();
  (((z += y) -= 1) *= 2.5) /= y;
  ((z -= y) *= y) += 0.5f;
  z /= 4;
  ((whole &= y) |= y) ^= y;
  z[0] = y[1];
  z[1][0] = 7.5;
  z[1][1] = z.select(0, 0).narrow(0, 0, 1)[0];
  return {z, whole};
}
"""
ON_DEVICE = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename T>
__global__ void twice(const T* x, T* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] * T(2);
}
__global__ void row(torch::PackedTensorAccessor32<float, 2> x) { x[threadIdx.y][threadIdx.x] += 100; }
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous tensor on a GPU");
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  at::cuda::CUDAGuard other(x.device());
  auto y = torch::empty_like(x);
  int n = x.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice", [&] {
    twice<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (y.scalar_type() == torch::kFloat32 && y.dim() == 2)
    row<<<1, dim3(y.size(1), y.size(0)), 0, stream>>>(y.packed_accessor32<float, 2>());
  AT_CUDA_CHECK(cudaGetLastError());
  return y;
}
"""

PLAIN_ON_HOST = """#include <torch/extension.h>
#include <stdexcept>
std::vector<int64_t> described(const torch::Tensor& x) {
  std::vector<int64_t> all = x.sizes().vec();
  for (int64_t stride : x.strides()) all.push_back(stride);
  for (int64_t one : {x.dim(), x.numel(), (int64_t)x.nbytes(), x.element_size(), x.storage_offset(), x.size(-1)})
    all.push_back(one);
  for (bool one : {x.is_contiguous(), x.is_cuda(), x.defined(), x.device().is_cpu(), x.device() == torch::kCPU,
                   x.dtype() == torch::kFloat32, torch::kFloat16 != x.dtype(), x.scalar_type() == at::kHalf,
                   x.options().dtype() == x.dtype(), x.sizes() == x.strides(), x.dtype().itemsize() == 4,
                   x.dtype().toScalarType() == torch::kFloat64, x.options().requires_grad()})
    all.push_back(one);
  return all;
}
std::vector<torch::Tensor> made(torch::Tensor x, int64_t n) {
  auto options = torch::TensorOptions().dtype(torch::kFloat16).device(torch::kCPU);
  torch::TensorOptions whole(torch::kInt64), there(x.device());
  return {torch::zeros({n, 2}, x.options().dtype(torch::kFloat64)), torch::ones({n}, options), torch::ones(n, whole),
          torch::zeros(x.sizes(), there.dtype(x.dtype())), torch::zeros_like(x), torch::ones({2, n}, torch::kBFloat16),
          torch::ones({1}, torch::dtype(torch::kBool).device(torch::kCPU).requires_grad(false)), x.contiguous(),
          torch::ones({2}, torch::device(torch::Device("cpu:0")).dtype(torch::kUInt8)), x.transpose(0, 1).clone(),
          torch::ones({3}, options.requires_grad(true).layout(torch::kStrided)), x.to(torch::kFloat64), x.view({-1}),
          torch::zeros_like(x, x.options().memory_format(at::MemoryFormat::Contiguous)).to(x.dtype())};
}
torch::Tensor grown(torch::Tensor x, at::Tensor& y, const at::Tensor& z) {
  torch::Tensor none;
  if (none.defined()) return none;
  none = y;
  y = x;
  return z.matmul(std::move(none));
}
std::string told(int a, long b, float c, double d, bool e, std::string f) {
  return std::to_string(a) + std::to_string(b) + std::to_string(c) + std::to_string(d) + std::to_string(e) + f;
}
float half(float x) { return x / 2; }
bool maybe(std::optional<torch::Tensor> x) { return x.has_value() && x->defined(); }
std::vector<torch::Tensor> many(std::vector<torch::Tensor> all, std::vector<int64_t> which) {
  std::vector<torch::Tensor> chosen;
  for (int64_t one : which) chosen.push_back(all.at(one));
  return chosen;
}
void nothing(torch::Tensor x) { x.zero_(); }
void refused(torch::Tensor x, int64_t which) {
  TORCH_CHECK(which != 0, "it is zero");
  TORCH_CHECK(which != 1);
  TORCH_CHECK(which != 2, "of ", x.sizes(), " on ", x.device(), ": ", 1, 'c', 2u, 3L, 4ul, 5ll, 6ull, true, 0.1f, 1e-9,
              std::string(" text"));
  if (which == 3) throw std::runtime_error("not of torch's");
  if (which == 4) throw std::out_of_range("beyond");
  if (which == 5) throw which;
}
"""
"""A C++ half, or the host's part of a CUDA half, that takes and makes tensors and no more."""
PLAIN_ON_DEVICE = """#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] * 2;
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous tensor on a GPU, not ", x.device());
  c10::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty(x.sizes(), x.options().dtype(torch::kFloat32));
  int n = x.numel();
  twice<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
