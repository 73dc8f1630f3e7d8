"""Sources of extensions, for tests of the headers that they are compiled against."""

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
