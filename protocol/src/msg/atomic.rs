//! Atomic operations that a peer executes when it is asked by a message: more than RDMA has, and of two lengths.

/// What an atomic operation does with the number that it finds; operands are cut to the number's length. Additions wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AtomicOp {
    /// Adds to it.
    Add(u64),
    /// Replaces it by `swap` where it equals `compare`.
    CompareSwap {
        /// What it is compared with.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Replaces it.
    Swap(u64),
    /// Keeps the bits that are set in both.
    And(u64),
    /// Sets the bits that are set in either.
    Or(u64),
    /// Sets the bits that are set in one of both.
    Xor(u64),
    /// Keeps the smaller one, unsigned.
    Min(u64),
    /// Keeps the greater one, unsigned.
    Max(u64),
    /// Keeps the smaller one, in two's complement.
    SignedMin(u64),
    /// Keeps the greater one, in two's complement.
    SignedMax(u64),
}

/// How long the number of an atomic operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtomicWidth {
    /// 4 bytes.
    U32,
    /// 8 bytes.
    #[default]
    U64,
}

impl AtomicWidth {
    /// Returns the number's length in bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    /// Never: a number has bytes.
    pub const fn is_empty(self) -> bool {
        false
    }
}

impl AtomicOp {
    /// Returns what a number of 8 bytes becomes.
    pub fn apply(self, before: u64) -> u64 {
        match self {
            Self::Add(operand) => before.wrapping_add(operand),
            Self::CompareSwap { compare, swap } if before == compare => swap,
            Self::CompareSwap { .. } => before,
            Self::Swap(operand) => operand,
            Self::And(operand) => before & operand,
            Self::Or(operand) => before | operand,
            Self::Xor(operand) => before ^ operand,
            Self::Min(operand) => before.min(operand),
            Self::Max(operand) => before.max(operand),
            Self::SignedMin(operand) => before.cast_signed().min(operand.cast_signed()).cast_unsigned(),
            Self::SignedMax(operand) => before.cast_signed().max(operand.cast_signed()).cast_unsigned(),
        }
    }

    /// Returns what a number of 4 bytes becomes.
    pub fn apply_to_u32(self, before: u32) -> u32 {
        let sign_extended = |word: u64| i64::from((word as u32).cast_signed()).cast_unsigned();
        match self {
            Self::SignedMin(_) | Self::SignedMax(_) => {
                self.with_operands(sign_extended).apply(sign_extended(before.into())) as u32
            }
            _ => self.with_operands(|word| u64::from(word as u32)).apply(before.into()) as u32,
        }
    }

    fn with_operands(self, of: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Add(operand) => Self::Add(of(operand)),
            Self::CompareSwap { compare, swap } => Self::CompareSwap { compare: of(compare), swap: of(swap) },
            Self::Swap(operand) => Self::Swap(of(operand)),
            Self::And(operand) => Self::And(of(operand)),
            Self::Or(operand) => Self::Or(of(operand)),
            Self::Xor(operand) => Self::Xor(of(operand)),
            Self::Min(operand) => Self::Min(of(operand)),
            Self::Max(operand) => Self::Max(of(operand)),
            Self::SignedMin(operand) => Self::SignedMin(of(operand)),
            Self::SignedMax(operand) => Self::SignedMax(of(operand)),
        }
    }

    /// Returns its code on the wire, its operand, and what is compared.
    pub(super) fn to_wire(self) -> (u8, u64, u64) {
        match self {
            Self::Add(operand) => (0, operand, 0),
            Self::CompareSwap { compare, swap } => (1, swap, compare),
            Self::Swap(operand) => (2, operand, 0),
            Self::And(operand) => (3, operand, 0),
            Self::Or(operand) => (4, operand, 0),
            Self::Xor(operand) => (5, operand, 0),
            Self::Min(operand) => (6, operand, 0),
            Self::Max(operand) => (7, operand, 0),
            Self::SignedMin(operand) => (8, operand, 0),
            Self::SignedMax(operand) => (9, operand, 0),
        }
    }

    /// Returns the operation of a code on the wire.
    pub(super) fn from_wire(code: u8, operand: u64, compare: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Add(operand),
            1 => Self::CompareSwap { compare, swap: operand },
            2 => Self::Swap(operand),
            3 => Self::And(operand),
            4 => Self::Or(operand),
            5 => Self::Xor(operand),
            6 => Self::Min(operand),
            7 => Self::Max(operand),
            8 => Self::SignedMin(operand),
            9 => Self::SignedMax(operand),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_lengths_become_what_the_operation_says() {
        let minus = |value: i64| value.cast_unsigned();
        for (op, before, after, after_u32) in [
            (AtomicOp::Add(minus(-1)), 0, u64::MAX, u32::MAX),
            (AtomicOp::Add(1), 0xffff_ffff, 0x1_0000_0000, 0),
            (AtomicOp::CompareSwap { compare: 7, swap: 9 }, 7, 9, 9),
            (AtomicOp::CompareSwap { compare: 7, swap: 9 }, 8, 8, 8),
            (AtomicOp::CompareSwap { compare: 1 << 32 | 7, swap: 9 }, 7, 7, 9),
            (AtomicOp::Swap(5), 6, 5, 5),
            (AtomicOp::And(0b110), 0b011, 0b010, 0b010),
            (AtomicOp::Or(0b110), 0b011, 0b111, 0b111),
            (AtomicOp::Xor(0b110), 0b011, 0b101, 0b101),
            (AtomicOp::Min(minus(-1)), 3, 3, 3),
            (AtomicOp::Max(minus(-1)), 3, u64::MAX, u32::MAX),
            (AtomicOp::SignedMin(minus(-1)), 3, minus(-1), u32::MAX),
            (AtomicOp::SignedMax(minus(-1)), 3, 3, 3),
            (AtomicOp::SignedMax(0), 0x8000_0000, 0x8000_0000, 0),
            (AtomicOp::SignedMin(0), 0x8000_0000, 0, 0x8000_0000),
        ] {
            assert_eq!((op.apply(before), op.apply_to_u32(before as u32)), (after, after_u32), "{op:?} of {before:#x}");
        }
    }
}
