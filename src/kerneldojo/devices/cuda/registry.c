/* Linked into a candidate's extension with `-Wl,--wrap=__cudaRegisterFunction`: remembers which kernels it registers,
   so that the profiler knows them by their handles and not by their names. */

enum { DOJO_MAX_KERNELS = 4096 };

const void *dojo_kernels[DOJO_MAX_KERNELS];
int dojo_num_kernels;

void __real___cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                                   int *);

void __wrap___cudaRegisterFunction(void **binary, const char *stub, char *device_function, const char *name, int limit,
                                   void *thread_id, void *block_id, void *block, void *grid, int *shared) {
  if (dojo_num_kernels < DOJO_MAX_KERNELS) dojo_kernels[dojo_num_kernels++] = stub;
  __real___cudaRegisterFunction(binary, stub, device_function, name, limit, thread_id, block_id, block, grid, shared);
}
