// One exported entry per driver function: a jump through a slot that the loader-time constructor fills (resolve.cc)
// with the driver's own address or with the shim's wrapper. A jump keeps every argument register and the stack as
// they are, so nothing needs to be known of a function that is only passed through.
#if !defined(__x86_64__)
#error "the shim's trampolines are written for x86-64 only"
#endif

  .macro trampoline symbol
  .pushsection .text
  .globl \symbol
  .type \symbol, @function
  .p2align 4
\symbol:
  endbr64
  jmp *0f(%rip)
  .size \symbol, . - \symbol
  .popsection
  .pushsection .data.rel.sluice_slots, "aw", @progbits
0:
  .quad sluice_not_initialized
  .popsection
  .endm

  .section .data.rel.sluice_slots, "aw", @progbits
  .p2align 3
  .globl sluice_slots
  .hidden sluice_slots
sluice_slots:

// The includer's library: which names, and what a call gets that comes from a constructor before the shim's own.
#define SLUICE_EXPORT(symbol) trampoline symbol
#include SLUICE_EXPORTS

  .text
  .globl sluice_not_initialized
  .hidden sluice_not_initialized
  .type sluice_not_initialized, @function
sluice_not_initialized:
  endbr64
  movl $SLUICE_NOT_INITIALIZED, %eax
  ret
  .size sluice_not_initialized, . - sluice_not_initialized

  .section .note.GNU-stack, "", @progbits
