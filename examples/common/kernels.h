// The examples' kernels, as PTX text for Turing and newer.
#pragma once

namespace sluice::example {

// spin_ns adds up the steps of %globaltimer and counts none of them as more than 4 us: the timer runs on while
// another process has the GPU, and that time must not pass for work done.
inline constexpr char kKernels[] = R"ptx(
.version 6.4
.target sm_75
.address_size 64

.visible .entry spin_ns(.param .u64 spin_ns_ns)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [spin_ns_ns];
  mov.u64 %rd2, %globaltimer;
  mov.u64 %rd3, 0;
SPIN_NS_LOOP:
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd5, %rd4, %rd2;
  min.u64 %rd5, %rd5, 4000;
  add.u64 %rd3, %rd3, %rd5;
  mov.u64 %rd2, %rd4;
  setp.lt.u64 %p1, %rd3, %rd1;
  @%p1 bra SPIN_NS_LOOP;
  ret;
}

.visible .entry saxpy(.param .u32 saxpy_n, .param .f32 saxpy_a, .param .u64 saxpy_x, .param .u64 saxpy_y)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<7>;
  ld.param.u32 %r1, [saxpy_n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra SAXPY_END;
  ld.param.f32 %f1, [saxpy_a];
  ld.param.u64 %rd1, [saxpy_x];
  ld.param.u64 %rd2, [saxpy_y];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3;
  add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f4;
SAXPY_END:
  ret;
}
)ptx";

}  // namespace sluice::example
