//! `lu SIZE`: decomposes a SIZE x SIZE matrix into a lower and an upper triangle in place, like one of the programs that
//! protection against thrashing was first tried with (Jiang and Zhang, 2001). Each step goes over the complete rest of the
//! matrix, so only finished rows are cold.
//!
//! It calculates with integers modulo 2^31 - 1: exact, so that the result can be checked, and fast in a guest without a
//! floating point unit.

use std::process::ExitCode;

/// The modulus, a Mersenne prime.
const P: u64 = (1 << 31) - 1;

/// The remainder of what is below 2^62.
fn reduce(x: u64) -> u64 {
    let x = (x & P) + (x >> 31);
    if x >= P { x - P } else { x }
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = reduce(result * base);
        }
        base = reduce(base * base);
        exponent >>= 1;
    }
    result
}

/// A pseudorandom entry of the matrix (the finalizer of SplitMix64; Steele, Lea and Flood, 2014). With less mixing its rows
/// would depend on each other.
fn entry(row: usize, column: usize) -> u32 {
    let mut mixed = ((row as u64) << 32 | column as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % P) as u32
}

/// Without pivoting: no pivot is zero here, and the check would fail if one were.
#[expect(clippy::cast_possible_truncation, reason = "a remainder is below 2^31")]
fn decompose(matrix: &mut [u32], size: usize) {
    for step in 0..size {
        let (above, below) = matrix.split_at_mut((step + 1) * size);
        let pivot = &above[step * size..];
        let inverse = power(u64::from(pivot[step]), P - 2);
        for row in below.chunks_exact_mut(size) {
            let factor = reduce(u64::from(row[step]) * inverse);
            row[step] = factor as u32;
            // Minus the factor, so that nothing gets below zero.
            let minus = P - factor;
            for (entry, above) in row[step + 1..].iter_mut().zip(&pivot[step + 1..]) {
                *entry = reduce(minus * u64::from(*above) + u64::from(*entry)) as u32;
            }
        }
    }
}

/// Whether the product of the triangles equals the matrix, at 64 places.
fn is_right(matrix: &[u32], size: usize) -> bool {
    let places = (0..64).map(|n| (n * 7919 % size, n * 104_729 % size));
    places.into_iter().all(|(row, column)| {
        let lower = |k: usize| if k == row { 1 } else { u64::from(matrix[row * size + k]) };
        let upper = |k: usize| u64::from(matrix[k * size + column]);
        let product = (0..=row.min(column)).fold(0, |sum, k| reduce(sum + lower(k) * upper(k)));
        product == u64::from(entry(row, column))
    })
}

fn main() -> ExitCode {
    let Some(size) = std::env::args().nth(1).and_then(|word| word.parse::<usize>().ok()).filter(|size| *size > 1)
    else {
        eprintln!("lu SIZE: rows and columns, of four bytes each");
        return ExitCode::from(2);
    };
    let mut matrix: Vec<u32> = (0..size * size).map(|at| entry(at / size, at % size)).collect();
    decompose(&mut matrix, size);
    if !is_right(&matrix, size) {
        eprintln!("lu: the triangles are wrong");
        return ExitCode::FAILURE;
    }
    println!("decomposed {size} x {size}");
    ExitCode::SUCCESS
}
