//! What the operations do to numbers of each datatype (fi_atomic(3)).

use std::ffi::c_int;

use crate::abi::atomic::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_BAND, FI_BOR, FI_BXOR, FI_CSWAP, FI_CSWAP_GE, FI_CSWAP_GT, FI_CSWAP_LE,
    FI_CSWAP_LT, FI_CSWAP_NE, FI_DOUBLE, FI_DOUBLE_COMPLEX, FI_FLOAT, FI_FLOAT_COMPLEX, FI_INT8, FI_INT16, FI_INT32,
    FI_INT64, FI_LAND, FI_LOR, FI_LXOR, FI_MAX, FI_MIN, FI_MSWAP, FI_PROD, FI_SUM, FI_UINT8, FI_UINT16, FI_UINT32,
    FI_UINT64,
};

/// A number, and what may be done to it.
trait AtomicNumber: Copy + PartialEq + Default {
    /// `old` after the operation with `operand`; none where it is not defined for such numbers.
    fn combine(op: c_int, old: Self, operand: Self) -> Option<Self>;

    /// The bits of `operand` that `mask` has, and the others of `old`.
    fn masked(_old: Self, _operand: Self, _mask: Self) -> Option<Self> {
        None
    }

    /// How two numbers compare, where they have an order.
    fn is_below(_one: Self, _other: Self) -> Option<bool> {
        None
    }
}

/// A complex number, as in C.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Default)]
struct Complex<T> {
    re: T,
    im: T,
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl AtomicNumber for $t {
            fn combine(op: c_int, old: Self, operand: Self) -> Option<Self> {
                let (is, other) = (old != 0, operand != 0);
                Some(match op {
                    FI_MIN => old.min(operand),
                    FI_MAX => old.max(operand),
                    FI_SUM => old.wrapping_add(operand),
                    FI_PROD => old.wrapping_mul(operand),
                    FI_LOR => Self::from(is || other),
                    FI_LAND => Self::from(is && other),
                    FI_LXOR => Self::from(is != other),
                    FI_BOR => old | operand,
                    FI_BAND => old & operand,
                    FI_BXOR => old ^ operand,
                    _ => return None,
                })
            }

            fn masked(old: Self, operand: Self, mask: Self) -> Option<Self> {
                Some(operand & mask | old & !mask)
            }

            fn is_below(one: Self, other: Self) -> Option<bool> {
                Some(one < other)
            }
        }
    )*};
}

macro_rules! reals {
    ($($t:ty)*) => {$(
        impl AtomicNumber for $t {
            fn combine(op: c_int, old: Self, operand: Self) -> Option<Self> {
                let (is, other) = (old != 0.0, operand != 0.0);
                let truth = |holds| if holds { 1.0 } else { 0.0 };
                Some(match op {
                    FI_MIN => if operand < old { operand } else { old },
                    FI_MAX => if operand > old { operand } else { old },
                    FI_SUM => old + operand,
                    FI_PROD => old * operand,
                    FI_LOR => truth(is || other),
                    FI_LAND => truth(is && other),
                    FI_LXOR => truth(is != other),
                    _ => return None,
                })
            }

            fn is_below(one: Self, other: Self) -> Option<bool> {
                Some(one < other)
            }
        }

        impl AtomicNumber for Complex<$t> {
            fn combine(op: c_int, old: Self, operand: Self) -> Option<Self> {
                Some(match op {
                    FI_SUM => Self { re: old.re + operand.re, im: old.im + operand.im },
                    FI_PROD => Self {
                        re: old.re * operand.re - old.im * operand.im,
                        im: old.re * operand.im + old.im * operand.re,
                    },
                    _ => return None,
                })
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);
reals!(f32 f64);

/// A number after an operation, which compares where there is something to compare with; none where that is not defined.
fn after<T: AtomicNumber>(op: c_int, old: T, operand: T, compare: Option<T>) -> Option<T> {
    let Some(compare) = compare else {
        return match op {
            FI_ATOMIC_READ => Some(old),
            FI_ATOMIC_WRITE => Some(operand),
            _ => T::combine(op, old, operand),
        };
    };
    let is_stored = match op {
        FI_CSWAP => compare == old,
        FI_CSWAP_NE => compare != old,
        FI_CSWAP_LT => T::is_below(compare, old)?,
        FI_CSWAP_LE => T::is_below(compare, old)? || compare == old,
        FI_CSWAP_GT => T::is_below(old, compare)?,
        FI_CSWAP_GE => T::is_below(old, compare)? || compare == old,
        FI_MSWAP => return T::masked(old, operand, compare),
        _ => return None,
    };
    Some(if is_stored { operand } else { old })
}

/// An operation on numbers of a datatype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arithmetic {
    datatype: c_int,
    op: c_int,
    compares: bool,
}

/// What is done with numbers of one type, whichever it is.
trait Visit {
    type Answer;
    fn visit<T: AtomicNumber>(self, of: Arithmetic) -> Self::Answer;
}

impl Arithmetic {
    /// None where the operation is not defined for the datatype, or compares and should not, or the other way round.
    pub(super) fn of(datatype: c_int, op: c_int, compares: bool) -> Option<Self> {
        struct IsDefined;
        impl Visit for IsDefined {
            type Answer = bool;
            fn visit<T: AtomicNumber>(self, Arithmetic { op, compares, .. }: Arithmetic) -> bool {
                after(op, T::default(), T::default(), compares.then(T::default)).is_some()
            }
        }
        let it = Self { datatype, op, compares };
        it.with(IsDefined).filter(|&is_defined| is_defined).map(|_| it)
    }

    pub(super) const fn compares(self) -> bool {
        self.compares
    }

    /// Whether it changes nothing.
    pub(super) const fn only_reads(self) -> bool {
        self.op == FI_ATOMIC_READ
    }

    /// Bytes of a number.
    pub(super) fn size(self) -> usize {
        struct SizeOf;
        impl Visit for SizeOf {
            type Answer = usize;
            fn visit<T: AtomicNumber>(self, _: Arithmetic) -> usize {
                size_of::<T>()
            }
        }
        self.with(SizeOf).unwrap_or(1)
    }

    /// As it is sent.
    pub(super) const fn to_wire(self) -> u64 {
        self.datatype as u64 | (self.op as u64) << 8 | (self.compares as u64) << 16
    }

    /// None where it is not defined.
    pub(super) fn from_wire(code: u64) -> Option<Self> {
        (code < 1 << 17).then(|| Self::of((code & 0xff) as c_int, (code >> 8 & 0xff) as c_int, code >> 16 == 1))?
    }

    /// Changes numbers, and puts what was there before into `before`. There are as many operands, and as many numbers to compare with,
    /// where it has any.
    ///
    /// # Safety
    /// So many bytes as `before` has may be read and written at `target`, and no other thread of this process does so meanwhile but by
    /// operations of libfabric's.
    pub(super) unsafe fn execute(self, target: *mut u8, operands: &[u8], compares: &[u8], before: &mut [u8]) {
        struct Execute<'a>(*mut u8, [&'a [u8]; 2], &'a mut [u8]);
        impl Visit for Execute<'_> {
            type Answer = ();
            fn visit<T: AtomicNumber>(self, Arithmetic { op, compares, .. }: Arithmetic) {
                let Self(target, [operands, others], before) = self;
                let nth = |bytes: &[u8], at: usize| {
                    let bytes = bytes.get(at * size_of::<T>()..(at + 1) * size_of::<T>());
                    // SAFETY: there are as many bytes as a number has, all of whose patterns are numbers.
                    bytes.map_or_else(T::default, |bytes| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
                };
                for at in 0..before.len() / size_of::<T>() {
                    // SAFETY: the caller says that the bytes are there.
                    unsafe {
                        let place = target.cast::<T>().add(at);
                        let old = place.read_unaligned();
                        before.as_mut_ptr().cast::<T>().add(at).write_unaligned(old);
                        if let Some(new) = after(op, old, nth(operands, at), compares.then(|| nth(others, at))) {
                            place.write_unaligned(new);
                        }
                    }
                }
            }
        }
        self.with(Execute(target, [operands, compares], before));
    }

    fn with<V: Visit>(self, visit: V) -> Option<V::Answer> {
        Some(match self.datatype {
            FI_INT8 => visit.visit::<i8>(self),
            FI_UINT8 => visit.visit::<u8>(self),
            FI_INT16 => visit.visit::<i16>(self),
            FI_UINT16 => visit.visit::<u16>(self),
            FI_INT32 => visit.visit::<i32>(self),
            FI_UINT32 => visit.visit::<u32>(self),
            FI_INT64 => visit.visit::<i64>(self),
            FI_UINT64 => visit.visit::<u64>(self),
            FI_FLOAT => visit.visit::<f32>(self),
            FI_DOUBLE => visit.visit::<f64>(self),
            FI_FLOAT_COMPLEX => visit.visit::<Complex<f32>>(self),
            FI_DOUBLE_COMPLEX => visit.visit::<Complex<f64>>(self),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: AtomicNumber + std::fmt::Debug>(datatype: c_int, op: c_int, old: T, operand: T, compare: Option<T>) -> T {
        let it = Arithmetic::of(datatype, op, compare.is_some()).expect("it is defined");
        assert_eq!(Arithmetic::from_wire(it.to_wire()), Some(it));
        assert_eq!(it.size(), size_of::<T>());
        let bytes = |number: T| {
            let mut bytes = vec![0_u8; size_of::<T>()];
            // SAFETY: there is room for one number.
            unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(number) };
            bytes
        };
        let (mut target, mut before) = (bytes(old), bytes(T::default()));
        let compares = compare.map(bytes).unwrap_or_default();
        // SAFETY: the bytes are this test's.
        let (new, kept) = unsafe {
            it.execute(target.as_mut_ptr(), &bytes(operand), &compares, &mut before);
            (target.as_ptr().cast::<T>().read_unaligned(), before.as_ptr().cast::<T>().read_unaligned())
        };
        assert_eq!(kept, old);
        new
    }

    #[test]
    fn integers_are_combined_as_their_operation_says() {
        let cases = [
            (FI_MIN, 3, 5, 3),
            (FI_MAX, 3, 5, 5),
            (FI_SUM, 3, 5, 8),
            (FI_PROD, 3, 5, 15),
            (FI_LOR, 0, 5, 1),
            (FI_LOR, 0, 0, 0),
            (FI_LAND, 3, 5, 1),
            (FI_LAND, 3, 0, 0),
            (FI_LXOR, 3, 5, 0),
            (FI_LXOR, 3, 0, 1),
            (FI_BOR, 3, 5, 7),
            (FI_BAND, 3, 5, 1),
            (FI_BXOR, 3, 5, 6),
            (FI_ATOMIC_READ, 3, 5, 3),
            (FI_ATOMIC_WRITE, 3, 5, 5),
        ];
        for (op, old, operand, new) in cases {
            assert_eq!(run(FI_INT64, op, i64::from(old), i64::from(operand), None), i64::from(new), "{op}");
            assert_eq!(run(FI_UINT8, op, old as u8, operand as u8, None), new as u8, "{op}");
        }
        assert_eq!(run(FI_INT8, FI_SUM, i8::MAX, 1, None), i8::MIN, "it wraps");
        assert_eq!(run(FI_INT32, FI_MIN, -3_i32, 2, None), -3);
        assert_eq!(run(FI_UINT32, FI_MIN, -3_i32 as u32, 2, None), 2);
    }

    #[test]
    fn a_number_is_stored_where_what_it_is_compared_with_says_so() {
        // The number to compare with stands before the operator, and the target behind it.
        for (op, below, equal, above) in [
            (FI_CSWAP, 7, 9, 7),
            (FI_CSWAP_NE, 9, 7, 9),
            (FI_CSWAP_LT, 9, 7, 7),
            (FI_CSWAP_LE, 9, 9, 7),
            (FI_CSWAP_GT, 7, 7, 9),
            (FI_CSWAP_GE, 7, 9, 9),
        ] {
            let found = [6, 7, 8].map(|compare| run(FI_INT16, op, 7_i16, 9, Some(compare)));
            assert_eq!(found, [below, equal, above], "{op}");
            let found = [6.0, 7.0, 8.0].map(|compare| run(FI_DOUBLE, op, 7.0, 9.0, Some(compare)));
            assert_eq!(found.map(f64::to_bits), [below, equal, above].map(|it| f64::from(it).to_bits()), "{op}");
        }
        assert_eq!(run(FI_UINT16, FI_MSWAP, 0xf0f0_u16, 0x1234, Some(0x00ff)), 0xf034);
    }

    #[test]
    fn reals_and_complex_numbers_have_what_is_defined_for_them() {
        assert_eq!(run(FI_FLOAT, FI_PROD, 1.5_f32, -2.0, None).to_bits(), (-3.0_f32).to_bits());
        assert_eq!(run(FI_DOUBLE, FI_LXOR, 0.0_f64, 2.0, None).to_bits(), 1.0_f64.to_bits());
        let (one, other) = (Complex { re: 1.0, im: 2.0 }, Complex { re: 3.0, im: -1.0 });
        for (op, re, im) in [(FI_SUM, 4.0, 1.0), (FI_PROD, 5.0, 5.0), (FI_ATOMIC_WRITE, 3.0, -1.0)] {
            let it = Arithmetic::of(FI_DOUBLE_COMPLEX, op, false).expect("it is defined");
            assert_eq!(it.size(), 16);
            assert!(after::<Complex<f64>>(op, one, other, None) == Some(Complex { re, im }));
        }
        for (datatype, op, compares) in [
            (FI_FLOAT, FI_BOR, false),
            (FI_DOUBLE, FI_MSWAP, true),
            (FI_FLOAT_COMPLEX, FI_MIN, false),
            (FI_INT8, FI_CSWAP, false),
            (FI_DOUBLE_COMPLEX, FI_CSWAP_LT, true),
            (FI_INT8, FI_SUM, true),
            (12, FI_SUM, false),
            (-1, FI_SUM, false),
            (FI_INT8, 19, false),
            (FI_INT8, 19, true),
            (FI_INT8, -1, false),
        ] {
            assert_eq!(Arithmetic::of(datatype, op, compares), None, "{datatype} {op}");
        }
        assert_eq!(Arithmetic::from_wire(u64::MAX), None);
    }
}
