"""Conversions between narrow and wide floats that LLVM expects to find when the processor lacks them, as LLVM IR text.

Compilers bring these routines in a support library; code compiled in-process has to bring its own. All round to nearest, ties to
even. From float64 they round once: the step through float32 keeps what was lost in its last bit ("rounding to odd", Boldo and
Melquiond, "Emulation of FMA and correctly rounded sums").
"""

from __future__ import annotations

__all__ = ["NARROW_IR", "NARROW_SYMBOLS"]

NARROW_SYMBOLS = ("__truncsfbf2", "__truncdfbf2", "__truncsfhf2", "__truncdfhf2", "__extendhfsf2")

NARROW_IR = """
define bfloat @__truncsfbf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %nan = icmp ugt i32 %magnitude, 2139095040
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %high, 64
  %chosen = select i1 %nan, i32 %quiet, i32 %rounded
  %short = trunc i32 %chosen to i16
  %result = bitcast i16 %short to bfloat
  ret bfloat %result
}

define internal float @to_odd(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp une double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %found = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %found, %size
  %bits = bitcast float %near to i32
  %step = zext i1 %above to i32
  %below = sub i32 %bits, %step
  %sticky = or i32 %below, 1
  %chosen = select i1 %inexact, i32 %sticky, i32 %bits
  %result = bitcast i32 %chosen to float
  ret float %result
}

define bfloat @__truncdfbf2(double %x) {
  %single = call float @to_odd(double %x)
  %result = call bfloat @__truncsfbf2(float %single)
  ret bfloat %result
}

define half @__truncdfhf2(double %x) {
  %single = call float @to_odd(double %x)
  %result = call half @__truncsfhf2(float %single)
  ret half %result
}

define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %shifted = lshr i32 %bits, 16
  %sign = and i32 %shifted, 32768
  ; below 2^-14 the last place is 2^-24, as that of numbers in [0.5, 1) is
  %size = bitcast i32 %magnitude to float
  %aligned = fadd float %size, 5.000000e-01
  %aligned.bits = bitcast float %aligned to i32
  %subnormal = sub i32 %aligned.bits, 1056964608
  %moved = sub i32 %magnitude, 939524096
  %last = lshr i32 %moved, 13
  %odd = and i32 %last, 1
  %bias = add i32 %odd, 4095
  %sum = add i32 %moved, %bias
  %normal = lshr i32 %sum, 13
  %payload.wide = lshr i32 %magnitude, 13
  %payload = and i32 %payload.wide, 511
  %quiet = or i32 %payload, 32256
  %is.normal = icmp uge i32 %magnitude, 947912704
  %is.infinite = icmp uge i32 %magnitude, 1199566848
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %finite = select i1 %is.normal, i32 %normal, i32 %subnormal
  %number = select i1 %is.infinite, i32 31744, i32 %finite
  %unsigned = select i1 %is.nan, i32 %quiet, i32 %number
  %signed = or i32 %unsigned, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}

define float @__extendhfsf2(half %x) {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %sign.low = and i32 %bits, 32768
  %sign = shl i32 %sign.low, 16
  %count = uitofp i32 %magnitude to float
  %small = fmul float %count, 0x3E70000000000000
  %subnormal = bitcast float %small to i32
  %wide = shl i32 %magnitude, 13
  %normal = add i32 %wide, 939524096
  %special = or i32 %wide, 2139095040
  %quiet = or i32 %special, 4194304
  %is.normal = icmp uge i32 %magnitude, 1024
  %is.special = icmp uge i32 %magnitude, 31744
  %is.nan = icmp ugt i32 %magnitude, 31744
  %finite = select i1 %is.normal, i32 %normal, i32 %subnormal
  %number = select i1 %is.special, i32 %special, i32 %finite
  %unsigned = select i1 %is.nan, i32 %quiet, i32 %number
  %signed = or i32 %unsigned, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

declare double @llvm.fabs.f64(double)
"""
