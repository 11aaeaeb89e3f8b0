#include "kernels.h"

#include <fmt/format.h>

#include <bit>

namespace sluice::cli::doctor {
namespace {

// Streaming: past L1, and L2 fetches the neighbours that the same warps ask for next.
constexpr char kLoad[] = "ld.global.nc.L1::no_allocate.L2::128B.v4.u32";
constexpr char kStore[] = "st.global.v4.u32";

// `reg` becomes the place of this thread in the first tile of its block. Of the head: %rd4 the tile, %rd5 16 x thread,
// %rd6 the grid, %rd7 the stride in bytes, %rd9 the number of tiles.
std::string place(const char* kernel, const char* pointer, const char* reg, const KernelShape& shape) {
  return fmt::format(R"(  ld.param.u64 {2}, [{0}_{1}];
  cvta.to.global.u64 {2}, {2};
  mad.lo.u64 {2}, %rd4, {3}, {2};
  add.u64 {2}, {2}, %rd5;
)",
                     kernel, pointer, reg, shape.tile_bytes());
}

std::string head(const char* kernel, const std::string& parameters, const KernelShape& shape) {
  return fmt::format(R"(
.visible .entry {0}({1})
.maxntid {3}, 1, 1
{{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b32 %v<{4}>;
  .reg .b32 %s<8>;
  .reg .b64 %rd<12>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %nctaid.x;
  mov.u32 %r3, %tid.x;
  cvt.u64.u32 %rd4, %r1;
  mul.wide.u32 %rd5, %r3, 16;
  cvt.u64.u32 %rd6, %r2;
  mul.lo.u64 %rd7, %rd6, {2};
  ld.param.u64 %rd9, [{0}_bytes];
  shr.u64 %rd9, %rd9, {5};
)",
                     kernel, parameters, shape.tile_bytes(), shape.threads, 4 * shape.unroll,
                     std::countr_zero(shape.tile_bytes()));
}

std::string vector_at(unsigned i) {
  return fmt::format("{{%v{}, %v{}, %v{}, %v{}}}", 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
}

std::string loads(const char* reg, const KernelShape& shape) {
  std::string text;
  for (unsigned i = 0; i < shape.unroll; ++i)
    text += fmt::format("  {} {}, [{}+{}];\n", kLoad, vector_at(i), reg, 16 * shape.threads * i);
  return text;
}

// The loop over this block's tiles around `body`, which finds its place in `registers`.
std::string loop(const std::string& body, std::initializer_list<const char*> registers) {
  std::string text = "  setp.ge.u64 %p1, %rd4, %rd9;\n  @%p1 bra END;\nNEXT:\n" + body;
  for (const char* reg : registers) text += fmt::format("  add.u64 {0}, {0}, %rd7;\n", reg);
  return text + "  add.u64 %rd4, %rd4, %rd6;\n  setp.lt.u64 %p1, %rd4, %rd9;\n  @%p1 bra NEXT;\n";
}

std::string read_kernel(const KernelShape& shape) {
  std::string body = loads("%rd1", shape);
  for (unsigned i = 0; i < 4 * shape.unroll; ++i) body += fmt::format("  xor.b32 %s{0}, %s{0}, %v{1};\n", i % 4, i);
  return head(kReadKernel,
              ".param .u64 sluice_read_from, .param .u64 sluice_read_bytes, .param .u32 sluice_read_never, "
              ".param .u64 sluice_read_out",
              shape) +
         place(kReadKernel, "from", "%rd1", shape) +
         "  mov.b32 %s0, 0;\n  mov.b32 %s1, 0;\n  mov.b32 %s2, 0;\n  mov.b32 %s3, 0;\n" + loop(body, {"%rd1"}) +
         R"(  xor.b32 %s0, %s0, %s1;
  xor.b32 %s2, %s2, %s3;
  xor.b32 %s0, %s0, %s2;
  ld.param.u32 %r4, [sluice_read_never];
  setp.ne.u32 %p2, %s0, %r4;
  @%p2 bra END;
  ld.param.u64 %rd8, [sluice_read_out];
  cvta.to.global.u64 %rd8, %rd8;
  st.global.u32 [%rd8], %s0;
END:
  ret;
}
)";
}

// What is written differs from thread to thread: equal bytes might pass for less work.
std::string write_kernel(const KernelShape& shape) {
  std::string body;
  for (unsigned i = 0; i < shape.unroll; ++i)
    body += fmt::format("  {} [%rd1+{}], {{%s0, %s1, %s2, %s3}};\n", kStore, 16 * shape.threads * i);
  return head(kWriteKernel, ".param .u64 sluice_write_to, .param .u64 sluice_write_bytes", shape) +
         place(kWriteKernel, "to", "%rd1", shape) +
         R"(  mad.lo.u32 %s0, %r1, 0x9e3779b1, %r3;
  mul.lo.u32 %s0, %s0, 0x85ebca77;
  not.b32 %s1, %s0;
  xor.b32 %s2, %s0, 0x5bd1e995;
  xor.b32 %s3, %s1, %r3;
)" + loop(body, {"%rd1"}) +
         "END:\n  ret;\n}\n";
}

std::string copy_kernel(const KernelShape& shape) {
  std::string body = loads("%rd1", shape);
  for (unsigned i = 0; i < shape.unroll; ++i)
    body += fmt::format("  {} [%rd2+{}], {};\n", kStore, 16 * shape.threads * i, vector_at(i));
  return head(kCopyKernel, ".param .u64 sluice_copy_to, .param .u64 sluice_copy_from, .param .u64 sluice_copy_bytes",
              shape) +
         place(kCopyKernel, "from", "%rd1", shape) + place(kCopyKernel, "to", "%rd2", shape) +
         loop(body, {"%rd1", "%rd2"}) + "END:\n  ret;\n}\n";
}

}  // namespace

std::string bandwidth_ptx(const KernelShape& shape) {
  return ".version 7.4\n.target sm_75\n.address_size 64\n" + read_kernel(shape) + write_kernel(shape) +
         copy_kernel(shape);
}

}  // namespace sluice::cli::doctor
